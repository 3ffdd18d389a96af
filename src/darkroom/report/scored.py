"""A metrics file and its card, read and checked against each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError
from darkroom.metrics.cards import require_new
from darkroom.metrics.table import COUNT, of_group
from darkroom.metrics.table import scores as known_scores
from darkroom.report.metadata import Card, ClipCard, Scores, read_json, typed
from darkroom.report.scores import error_of, unknown

METRICS, CARD = Path("metrics/clip.json"), Path("cards/clip.json")  # of CLIP
_COUNTS = ("images", "captions")


@dataclass(frozen=True)
class Scored:
    """A metrics file and its card, as types, and the whole card as JSON."""

    scores: Scores
    card: Card
    whole: dict[str, Any]


def read_scored(name: str) -> Scored:
    """Return metrics/NAME.json and cards/NAME.json.

    Raises:
        ArtifactError: a file is missing or damaged, the files name different scores, or the page cannot explain one.
    """
    metrics, card = Path(f"metrics/{name}.json"), Path(f"cards/{name}.json")
    whole = read_json(card)
    require_new(whole, card)
    metadata = typed(Card, whole, card)
    scores = typed(Scores, read_json(metrics), metrics)
    if strange := unknown(scores):
        raise ArtifactError(
            f"{metrics} holds `{strange[0]}`, which the page cannot explain: describe it in "
            "src/darkroom/metrics/table.py."
        )
    if missing := sorted(set(scores) - {COUNT} ^ set(metadata.formulas)):
        raise ArtifactError(f"{card} is not the card of {metrics}: only one of them has `{missing[0]}`.")
    if not set(scores) & set(known_scores()):
        raise ArtifactError(f"{metrics} holds no score: run the stage that writes it again.")
    if scores.get(COUNT, metadata.n_fake) != metadata.n_fake:
        raise ArtifactError(
            f"{card} is not the card of {metrics}: they count {metadata.n_fake} and {scores[COUNT]:g} images."
        )
    return Scored(scores, metadata, whole)


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
