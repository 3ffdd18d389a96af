"""The card of a score: its protocol. A number without it is not a result.

A card holds what the number follows from, and nothing of clock, host, path, device or git, so equal work gives equal
bytes. Two scores compare where their cards differ in nothing but what is studied.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from darkroom.metrics.libraries import library_versions
from darkroom.metrics.table import formulas

RESIZE = {
    "in_domain": "none",
    "inception": "TensorFlow 1 bilinear to 299 px, align_corners=False, no half-pixel centres, no antialias",
}

QUANTISATION = "uint8, round((x + 1) 127.5) clamped to 0..255, x the output in [-1, 1]"


def score_card(
    *,
    scores: Mapping[str, float],
    extractors: Mapping[str, Mapping[str, Any]],
    reference_id: str,
    reference_split: str,
    n_fake: int,
    blocks: int | None = None,
    seed: int | None = None,
    sampler: Mapping[str, Any] | None = None,
    samples: str | None = None,
    quantisation: str = QUANTISATION,
    lpips: str | None = None,
    more_notes: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the card of `scores`, as JSON values.

    Args:
        scores: what was written to the metrics file; formulas are given for the names found here.
        extractors: name → `sha256` (of the weights), `dim`, `n` (real images in the reference), `kid_n` (of them, those
            that the kernel distance sees).
        reference_id: hash of the reference's manifest.
        reference_split: split of the real images.
        n_fake: number of images scored.
        blocks: of the jackknife.
        seed: of the samples.
        sampler: solver, steps, guidance, weights, …
        samples: hash of the samples' manifest, which names the model.
        quantisation: how network output became uint8.
        lpips: hash of the weights of LPIPS's network, where it was measured.
        more_notes: what else must be known of the scores.
        more: further facts, JSON values, under names of their own.
    """
    notes = [
        f"{name}: {n_fake} samples are fewer than twice its {metadata['dim']} features; "
        "the Fréchet distance is dominated by its bias, compare at equal n_fake only"
        for name, metadata in sorted(extractors.items())
        if n_fake < 2 * int(metadata["dim"])
    ]
    return {
        "extractors": {name: {**metadata, "resize": RESIZE[name]} for name, metadata in extractors.items()},
        "quantisation": quantisation,
        "reference": {"id": reference_id, "split": reference_split},
        "n_fake": n_fake,
        "blocks": blocks,
        "seed": seed,
        "samples": samples,
        "sampler": dict(sampler) if sampler is not None else None,
        "libraries": library_versions(),
        "formulas": formulas(scores),
        "notes": [*notes, *more_notes],
        **({"lpips": lpips} if lpips else {}),
        **(more or {}),
    }
