"""Metrics files and their cards, read and checked against each other; the rows of the table of scores."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError
from darkroom.metrics.cards import require_new
from darkroom.metrics.sample_scores import ALONE, score_names
from darkroom.metrics.score import TOO_FEW
from darkroom.metrics.table import COUNT, of_group
from darkroom.metrics.table import scores as known_scores
from darkroom.report.metadata import Card, ClipCard, Scores, read_json, typed
from darkroom.report.numbers import Number, number

Cells = tuple[Number | None, ...]


@dataclass(frozen=True)
class Row:
    """A score of this run and, beside it from left to right, what is known of real images; None: not of this score.

    Of a distance: what unseen real images score, and two halves of the reference.
    """

    name: str
    run: Number
    beside: Cells = (None, None)

    @property
    def title(self) -> str:
        """What stands in the table."""
        return title(self.name)

    @property
    def cells(self) -> Cells:
        """The numbers from left to right."""
        return self.run, *self.beside


def debiased(extractor: str) -> str:
    """Return the name of the Fréchet distance without its bias in the features of an extractor."""
    return next(iter(score_names(extractor, {"fd_debiased": 0.0})))


def distance_title(extractor: str) -> str:
    """Return what the Fréchet distance in the features of an extractor is called."""
    return "FID" if extractor == "inception" else "Fréchet distance"


def title(name: str) -> str:
    """Return what a score is called in a table."""
    known = known_scores().get(name)
    return name if known is None else known.title or name


def error_of(name: str) -> str:
    """Return the name of a score's standard error: one for a distance with its bias and without."""
    return f"{name.removesuffix('_debiased')}_se"


def too_few(name: str, scores: Mapping[str, float]) -> str:
    """Return what stands in place of a standard error that so few images do not give; "": it is there, or never is."""
    known = known_scores().get(name.removesuffix("_debiased"))
    if COUNT not in scores or known is None or not known.error or error_of(name) in scores:
        return ""
    return TOO_FEW.format(scores[COUNT])


def unknown(scores: Mapping[str, float]) -> list[str]:
    """Return the names in a metrics file that the page cannot explain: neither scores, nor errors of scores, nor n."""
    known = known_scores()
    errors = {error_of(name) for name in scores if name in known}
    return sorted(name for name in scores if name not in known and name not in errors and name != COUNT)


def value_of(name: str, scores: Mapping[str, float] | None) -> Number | None:
    """Return a score with its error, where it was given."""
    if scores is None or name not in scores:
        return None
    return replace(number(scores[name], scores.get(error_of(name))), few=too_few(name, scores))


def rows(scores: Mapping[str, float], names: Collection[str]) -> list[Row]:
    """Return rows without a noise floor, in the order of the table of scores."""
    return [Row(name, found) for name in known_scores() if name in names and (found := value_of(name, scores))]


def distance_rows(
    extractor: str, scores: Mapping[str, float], unseen: Mapping[str, float], halves: Mapping[str, float]
) -> list[Row]:
    """Return the rows of one extractor's distances, beside them its noise floor.

    Args:
        extractor: in_domain, inception, dinov2 or clip.
        scores: of the run, under the names of its metrics file.
        unseen: of unseen real images, under the names that every extractor's distances have: fd, fd_se, kid, …
        halves: of two halves of the reference, under the same names.
    """
    floor = score_names(extractor, unseen), score_names(extractor, halves)
    names = {*floor[1], *ALONE.get(extractor, ())}
    return [
        Row(name, found, (value_of(name, floor[0]), value_of(name, floor[1])))
        for name in known_scores()
        if name in names and (found := value_of(name, scores))
    ]


def require_explained(unknown: Sequence[str], holder: str) -> None:
    """Check that the page can explain all scores of a file; `holder`: the beginning of the error, `FILE holds`."""
    if unknown:
        raise ArtifactError(
            f"{holder} `{unknown[0]}`, which the page cannot explain: describe it in src/darkroom/metrics/table.py."
        )


@dataclass(frozen=True)
class Scored:
    """A metrics file and its card, as types, and the whole card as JSON."""

    scores: Scores
    card: Card
    whole: dict[str, Any]


def read_scored(name: str) -> Scored:
    """Return metrics/NAME.json and cards/NAME.json.

    Raises:
        ArtifactError: a file is missing or damaged, or the page cannot explain a score.
    """
    metrics, card = Path(f"metrics/{name}.json"), Path(f"cards/{name}.json")
    whole = read_json(card)
    require_new(whole, card)
    metadata = typed(Card, whole, card)
    scores = typed(Scores, read_json(metrics), metrics)
    require_explained(unknown(scores), f"{metrics} holds")
    if not set(scores) & set(known_scores()):
        raise ArtifactError(f"{metrics} holds no score: run the stage that writes it again.")
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
        ArtifactError: one is missing or damaged, or the page cannot explain a score.
    """
    metrics, path = Path("metrics/clip.json"), Path("cards/clip.json")
    whole, scores = read_json(path), read_json(metrics)
    if whole == scores == {}:
        return None
    require_new(whole, path)
    card, found = typed(ClipCard, whole, path), typed(Scores, scores, metrics)
    named = {name: value for name, value in found.items() if name not in ("images", "captions")}
    require_explained(sorted(named.keys() - set(of_group("clip")) - set(map(error_of, named))), f"{metrics} holds")
    return ClipScored(named, card, whole)
