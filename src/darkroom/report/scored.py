"""A metrics file and its card, read and checked against each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError
from darkroom.metrics.cards import require_new
from darkroom.metrics.table import COUNT
from darkroom.metrics.table import scores as known_scores
from darkroom.report.metadata import Card, Scores, read_json, typed
from darkroom.report.scores import unknown


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
