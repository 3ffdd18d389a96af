"""The scores of CLIP for the page: retrieval and zero-shot classification."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError
from darkroom.metrics.cards import require_new
from darkroom.metrics.table import of_group
from darkroom.report.metadata import ClipCard, Scores, read_json, typed
from darkroom.report.scores import error_of

METRICS, CARD = Path("metrics/clip.json"), Path("cards/clip.json")
_COUNTS = ("images", "captions")


@dataclass(frozen=True)
class ClipScored:
    """The scores of CLIP (empty without captions) and their card, as types and as JSON."""

    scores: Scores
    card: ClipCard
    whole: dict[str, Any]


def read_clip() -> ClipScored | None:
    """Return metrics/clip.json and cards/clip.json; None where there is no CLIP, of which both are empty.

    Raises:
        ArtifactError: one is missing or broken, they belong to different trainings, or the page cannot explain a score.
    """
    whole, scores = read_json(CARD), read_json(METRICS)
    if whole == scores == {}:
        return None
    require_new(whole, CARD)
    card, found = typed(ClipCard, whole, CARD), typed(Scores, scores, METRICS)
    counts = {name: found.pop(name, None) for name in _COUNTS}
    errors = {error_of(name) for name in found}
    if strange := sorted(set(found) - set(of_group("clip")) - errors):
        raise ArtifactError(
            f"{METRICS} holds `{strange[0]}`, which the page cannot explain: describe it in "
            "src/darkroom/metrics/table.py."
        )
    missing = sorted(set(found) - errors ^ set(card.formulas) - {"se"})
    if missing or counts != {"images": card.protocol.images, "captions": card.protocol.captions}:
        what = missing[0] if missing else "images"
        raise ArtifactError(f"{CARD} is not the card of {METRICS}: `{what}` differs.")
    return ClipScored(found, card, whole)
