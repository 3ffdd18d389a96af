"""The card of a score: its protocol. A number without it is not a result.

    protocol    what must be equal for two scores to compare: networks, images, counts, classes, precision, libraries
    treatment   what one varies: the model and its weights, sampler, steps, guidance with channels and interval, seed
    baselines   what is known without the model: the same scores of held-out real images, a constant answer, pairs
    formulas    of each score
    notes       what else must be known

It holds no time, host, path, device or git revision, so equal work gives equal bytes.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from darkroom.metrics.score import TOO_FEW, count_blocks
from darkroom.metrics.table import formulas

QUANTISATION = "uint8, round((x + 1) 127.5) clamped to 0..255, x the output in [-1, 1]"
PRECISION = "features in float32, statistics in float64"


def score_card(
    *,
    scores: Mapping[str, float],
    extractors: Mapping[str, Mapping[str, Any]],
    reference_id: str,
    reference_split: str,
    n_fake: int,
    classes: str | Mapping[str, int] | None = None,
    blocks: int | None = None,
    sampler: Mapping[str, Any] | None = None,
    samples: str | None = None,
    protocol: Mapping[str, Any] | None = None,
    baselines: Mapping[str, Any] | None = None,
    more_notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the card of `scores`, as JSON values.

    Args:
        scores: the content of the metrics file; its names select the formulas.
        extractors: name → `sha256` (of the weights), `resize`, `dim`, `n` (real images in the reference), `kid_n` (of
            them, those of the kernel distance).
        reference_id: hash of the reference's manifest.
        reference_split: split of the real images.
        n_fake: number of images scored.
        classes: the distribution of classes of both sides: frequency, balanced, or images by class; None: no reference.
        blocks: blocks of the jackknife, at most: see `count_blocks`.
        sampler: solver, steps, guidance, weights, seed, …
        samples: hash of the samples' manifest, which names the model.
        protocol: what else must be equal, JSON values: evaluators by their hashes.
        baselines: what is known without the model, JSON values.
        more_notes: further notes on the scores.
    """
    notes = [
        f"{name}: {n_fake} samples are fewer than twice its {metadata['dim']} features; "
        "the Fréchet distance is dominated by its bias, compare at equal n_fake only"
        for name, metadata in sorted(extractors.items())
        if n_fake < 2 * int(metadata["dim"])
    ]
    if blocks is not None and (blocks := count_blocks(n_fake, blocks)) == 1:
        notes.append(f"{TOO_FEW.format(n_fake)} for standard errors, so nothing follows from a difference")
    return {
        "protocol": {
            "extractors": {name: dict(metadata) for name, metadata in extractors.items()},
            "quantisation": QUANTISATION,
            "precision": PRECISION,
            "reference": {"id": reference_id, "split": reference_split},
            "n_fake": n_fake,
            "classes": dict(classes) if isinstance(classes, Mapping) else classes,
            "blocks": blocks,
            "libraries": library_versions(),
            **(protocol or {}),
        },
        "treatment": {"samples": samples, "seed": (sampler or {}).get("seed"), "sampler": sampler},
        "baselines": dict(baselines or {}),
        "formulas": formulas(scores),
        "notes": [*notes, *more_notes],
    }


LIBRARIES = ("numpy", "torch", "torch-fidelity", "torchmetrics")


def library_versions() -> dict[str, str]:
    """Return the versions of the packages that compute scores, without the build after a `+` (cpu, cu130)."""
    return {name: version(name).partition("+")[0] for name in LIBRARIES}
