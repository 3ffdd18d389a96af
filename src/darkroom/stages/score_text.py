"""Stage `score_text`: score images of captions, and write `metrics/text.json` and its card."""

from pathlib import Path

from darkroom.models.prior.settings import ScoreParams
from darkroom.stages.empty import unscored

PATHS = SAMPLES, METRICS, CARD = Path("samples/text"), Path("metrics/text.json"), Path("cards/text.json")


def run(params: ScoreParams) -> None:
    """Score images made from captions of test images, with the evaluators of `score_decoder`."""
    if unscored(*PATHS):
        return
    from darkroom.stages.scoring_pairs import score_pairs  # imports torch, not needed without samples

    score_pairs(PATHS, params.score_text, params.score_decoder, params.reference_stats, params.run.device)
