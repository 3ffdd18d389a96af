"""Stage `score_generator`: samples and reference in, `metrics/generator.json` and its card out."""

from pathlib import Path

from darkroom.artifacts.atomic import require_writable
from darkroom.models.generators.score_settings import Params
from darkroom.stages.scoring import score

SAMPLES, METRICS, CARD = Path("samples/generator"), Path("metrics/generator.json"), Path("cards/generator.json")


def run(params: Params) -> None:
    """Score the samples through every extractor of the reference, and write how it was done."""
    for path in (METRICS, CARD):
        require_writable(path)
    score(SAMPLES, params.score_generator, params.reference_stats.inception, params.run.device, METRICS, CARD)
