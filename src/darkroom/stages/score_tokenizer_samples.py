"""Stage `score_tokenizer_samples`: what a tokenizer generated, scored like the DiT's images; empty without any."""

from pathlib import Path

from darkroom.models.tokenizers.settings import ScoreSamplesParams
from darkroom.stages.empty import unscored

SAMPLES = Path("samples/tokenizer")
METRICS, CARD = Path("metrics/tokenizer_samples.json"), Path("cards/tokenizer_samples.json")
PATHS = SAMPLES, METRICS, CARD


def run(params: ScoreSamplesParams) -> None:
    """Score the samples and write how it was done; without samples, write that there is nothing to tell."""
    if unscored(*PATHS):
        return
    from darkroom.metrics.measure import Measurement
    from darkroom.stages.scoring import score  # with torch, which nothing to score does not need

    settings, networks = params.score_tokenizer_samples, params.reference_stats
    score(PATHS, settings, networks, params.run.device, None, lambda *_: Measurement())
