"""Stage `score_decoder`: score the decoder's samples, and write `metrics/decoder.json` and its card."""

from pathlib import Path

from darkroom.models.decoder.settings import ScoreParams
from darkroom.stages.empty import unscored

PATHS = SAMPLES, METRICS, CARD = Path("samples/decoder"), Path("metrics/decoder.json"), Path("cards/decoder.json")


def run(params: ScoreParams) -> None:
    """Score images decoded from embeddings of test images, and write how they were scored."""
    if unscored(*PATHS):
        return
    from darkroom.stages.scoring_pairs import score_pairs  # imports torch, not needed without samples

    settings = params.score_decoder
    score_pairs(PATHS, settings, settings, params.reference_stats, params.run.device)
