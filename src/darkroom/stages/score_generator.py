"""Stage `score_generator`: score the generator, and write `metrics/generator.json`, its card and `curves/bits/`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darkroom.artifacts.atomic import atomic_folder, require_writable, write_bytes
from darkroom.models.generators.sample_settings import ScoreParams
from darkroom.stages.empty import unscored

if TYPE_CHECKING:
    import torch

    from darkroom.data.reader import ImageShards

PATHS = SAMPLES, METRICS, CARD = Path("samples/generator"), Path("metrics/generator.json"), Path("cards/generator.json")
BITS, TABLE = Path("curves/bits"), "bits.tsv"
_COLUMNS = ("timestep", "bits", "bits_se", "x0_mse", "eps_mse")


def run(params: ScoreParams) -> None:
    """Score the samples with every extractor of the reference, and write how they were scored.

    The bits per dim of stored latents, if enabled, have a table of their terms by timestep; otherwise, and without
    samples, the table has no rows.
    """
    require_writable(BITS)
    if unscored(*PATHS):
        _write_table([])
        return
    from darkroom.metrics.measure import Measurement
    from darkroom.report.limit_log import print_limit
    from darkroom.stages.diversity import Vgg16
    from darkroom.stages.scoring import score  # imports torch, not needed without samples

    settings = params.score_generator
    lines: list[str] = []

    def measured(images: ImageShards, samples: Mapping[str, Any], device: torch.device) -> Measurement:
        if not settings.bits.enabled:
            return Measurement()
        from darkroom.models.generators.bits import measure_bits

        bits = settings.bits
        scores, terms, count = measure_bits(bits, samples["model"], device)
        lines.extend(terms)
        note = (
            f"bits_per_dim: {count} latents of the {bits.split} split, "
            f"{f'noise of seed {bits.seed}, ' if terms else ''}averaged weights, "
            "each under its class, if any, without guidance"
        )
        return Measurement(scores, notes=[note])

    lpips = Vgg16(Path(settings.vgg16), "score_generator.vgg16") if settings.lpips == "lpips" else None
    score(PATHS, settings, params.reference_stats, params.run.device, lpips, measured)
    _write_table(lines)
    print_limit()


def _write_table(lines: list[str]) -> None:
    with atomic_folder(BITS) as folder:
        write_bytes(folder / TABLE, "".join(f"{line}\n" for line in ["\t".join(_COLUMNS), *lines]).encode())
