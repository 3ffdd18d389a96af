"""Stage `score_tokenizer_samples`: score the tokenizer's samples like the DiT's images; empty without samples."""

from pathlib import Path

from darkroom.models.tokenizers.settings import ScoreSamplesParams
from darkroom.stages.empty import unscored

SAMPLES = Path("samples/tokenizer")
METRICS, CARD = Path("metrics/tokenizer_samples.json"), Path("cards/tokenizer_samples.json")
PATHS = SAMPLES, METRICS, CARD


def run(params: ScoreSamplesParams) -> None:
    """Score the samples and write how they were scored; without samples, write empty results."""
    if unscored(*PATHS):
        return
    from darkroom.metrics.measure import Measurement
    from darkroom.stages.scoring import score  # imports torch, not needed without samples

    settings, networks = params.score_tokenizer_samples, params.reference_stats
    score(PATHS, settings, networks, params.run.device, None, lambda *_: Measurement())
