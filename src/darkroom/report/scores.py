"""Metrics files and their cards, as types; the rows of the table of scores."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from darkroom.metrics.sample_scores import held_out_names, score_names
from darkroom.metrics.score import TOO_FEW
from darkroom.metrics.table import COUNT
from darkroom.metrics.table import scores as known_scores
from darkroom.report.metadata import Card, ClipCard, Scores, read_json, typed
from darkroom.report.numbers import Number, number

Cells = tuple[Number | None, ...]


@dataclass(frozen=True)
class Row:
    """A score of this run, followed by those of real images from left to right; None: not for this score.

    For a distance: the scores of unseen real images, and of two halves of the reference.
    """

    name: str
    run: Number
    beside: Cells = (None, None)

    @property
    def title(self) -> str:
        """The title in the table."""
        return title(self.name)

    @property
    def cells(self) -> Cells:
        """The numbers from left to right."""
        return self.run, *self.beside


def debiased(extractor: str) -> str:
    """Return the name of the Fréchet distance without its bias in the features of an extractor."""
    return next(iter(score_names(extractor, {"fd_debiased": 0.0})))


def distance_beside_real(
    scores: Mapping[str, float], baselines: Mapping[str, Any], extractor: str = "in_domain"
) -> tuple[str, Number | None, Number | None]:
    """Return the name of the debiased distance of a run, the distance, and that of as many real images, if known.

    It is that from held-out images if there are enough of them for a reference, so copies are not rewarded.
    """
    name = debiased(extractor)
    held_out = name.replace("_debiased", "_held_out_debiased")
    if held_out in scores:
        floor = held_out_names(baselines.get("train", {}).get(extractor, {}))
        name = held_out
    else:
        floor = baselines.get("held_out", {}).get(extractor, {})
    return name, value_of(name, scores), value_of(name, score_names(extractor, floor))


def distance_title(extractor: str) -> str:
    """Return the title of the Fréchet distance in the features of an extractor."""
    return "FID" if extractor == "inception" else "Fréchet distance"


def title(name: str) -> str:
    """Return the title of a score in a table."""
    known = known_scores().get(name)
    return name if known is None else known.title or name


def error_of(name: str) -> str:
    """Return the name of a score's standard error; a distance and its debiased version share one."""
    return f"{name.removesuffix('_debiased')}_se"


def too_few(name: str, scores: Mapping[str, float]) -> str:
    """Return the text for a standard error that too few images do not allow; "": it exists, or the score has none."""
    known = known_scores().get(name.removesuffix("_debiased"))
    if COUNT not in scores or known is None or not known.error or error_of(name) in scores:
        return ""
    return TOO_FEW.format(scores[COUNT])


def value_of(name: str, scores: Mapping[str, float] | None) -> Number | None:
    """Return a score with its error; None if it is missing."""
    if scores is None or name not in scores:
        return None
    return replace(number(scores[name], scores.get(error_of(name))), few=too_few(name, scores))


def rows(
    scores: Mapping[str, float],
    names: Collection[str],
    unseen: Mapping[str, float] | None = None,
    halves: Mapping[str, float] | None = None,
) -> list[Row]:
    """Return rows of the scores of a run, in the order of the table of scores.

    They include those of unseen real images and of two halves of the reference, if known.
    """
    return [
        Row(name, run, (value_of(name, unseen), value_of(name, halves)))
        for name in known_scores()
        if name in names and (run := value_of(name, scores))
    ]


@dataclass(frozen=True)
class Scored:
    """A metrics file and its card, as types, and the whole card as JSON."""

    scores: Scores
    card: Card
    whole: dict[str, Any]


def read_scored(name: str) -> Scored:
    """Return metrics/NAME.json and cards/NAME.json.

    Raises:
        ArtifactError: a file is missing or damaged.
    """
    metrics, card = Path(f"metrics/{name}.json"), Path(f"cards/{name}.json")
    whole = read_json(card)
    return Scored(typed(Scores, read_json(metrics), metrics), typed(Card, whole, card), whole)


@dataclass(frozen=True)
class ClipScored:
    """The scores of CLIP (empty without captions) and their card, as types and as JSON."""

    scores: Scores
    card: ClipCard
    whole: dict[str, Any]


def read_clip() -> ClipScored | None:
    """Return metrics/clip.json and cards/clip.json; None if there is no CLIP, so both are empty.

    Raises:
        ArtifactError: one is missing or damaged.
    """
    metrics, card = Path("metrics/clip.json"), Path("cards/clip.json")
    whole, scores = read_json(card), typed(Scores, read_json(metrics), metrics)
    return ClipScored(scores, typed(ClipCard, whole, card), whole) if whole or scores else None
