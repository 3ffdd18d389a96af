"""Stage `score_decoder`: samples, their originals and the reference in, `metrics/decoder.json` and its card out."""

from pathlib import Path

from darkroom.models.decoder.settings import ScoreParams
from darkroom.stages.empty import unscored

PATHS = SAMPLES, METRICS, CARD = Path("samples/decoder"), Path("metrics/decoder.json"), Path("cards/decoder.json")


def run(params: ScoreParams) -> None:
    """Score what was made of the embeddings of test images, and write how it was done."""
    if unscored(*PATHS):
        return
    from darkroom.stages.scoring_pairs import score_pairs  # with torch, which nothing to score does not need

    settings = params.score_decoder
    score_pairs(PATHS, settings, settings, params.reference_stats, params.run.device)
