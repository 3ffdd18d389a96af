"""Stage `score_dit`: samples and reference in, `metrics/dit.json` and its card out."""

from pathlib import Path

from darkroom.artifacts.atomic import require_writable
from darkroom.models.generators.score_settings import Params
from darkroom.stages.scoring import score

SAMPLES, METRICS, CARD = Path("samples/dit"), Path("metrics/dit.json"), Path("cards/dit.json")


def run(params: Params) -> None:
    """Score the samples through every extractor of the reference, and write how it was done."""
    for path in (METRICS, CARD):
        require_writable(path)
    score(SAMPLES, params.score_dit, params.reference_stats.inception, params.run.device, METRICS, CARD)
