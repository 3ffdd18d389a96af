"""The part of the page on samples/nearest: real images beside generated ones, and what is near the training images."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from darkroom.artifacts.manifest import read_manifest
from darkroom.metrics.sample_scores import MEMORISATION
from darkroom.metrics.score import Score, wilson
from darkroom.report.metadata import NearestFacts, typed
from darkroom.report.numbers import fixed, number, percent
from darkroom.report.pictures import Picture, read_png

_SPACES = {
    "pixels": "pixel by pixel, or mirrored",
    "moved": "also moved by up to a sixteenth of the side",
    "features": "in features of the in-domain extractor",
}


@dataclass(frozen=True)
class Line:
    """A number of the samples, and the same of held-out images."""

    score: Score
    run: str
    held_out: str


@dataclass(frozen=True)
class Copies:
    """What was found of some samples, and the pictures of the closest pairs, with how they were compared."""

    facts: NearestFacts
    pictures: dict[str, Picture]

    @property
    def lines(self) -> list[Line]:
        """The rows of the table."""
        facts = self.facts
        return [
            Line(
                score,
                _written(score.name, facts.scores, facts.images),
                _written(score.name, facts.floor, facts.held_out["images"]),
            )
            for score in MEMORISATION
            if score.name in facts.scores
        ]


@dataclass(frozen=True)
class Beside:
    """Real images beside some samples.

    columns: the classes of the columns of both pictures; empty where the samples have no classes or one.
    real: real images of these classes, drawn at random, or of the samples' captions.
    originals: the split of the real images of the samples' captions, in the places of these; "": they are at random.
    neighbours: samples, and below each the nearest training images; None where no image was looked for.
    rows: the names of the rows of `neighbours`.
    """

    columns: list[str]
    real: Picture
    originals: str
    neighbours: Picture | None
    rows: list[str]


def _nearest(name: str) -> tuple[Path, NearestFacts]:
    """Return the folder of what was found of some samples, and its metadata."""
    folder = Path("samples/nearest") / name
    return folder, typed(NearestFacts, read_manifest(folder, "nearest"), folder)


def read_beside(name: str) -> Beside | None:
    """Return the pictures of samples/nearest/NAME; None where there are no samples.

    Raises:
        ArtifactError: a file is missing or damaged; the message names it.
    """
    folder, facts = _nearest(name)
    if "real.png" not in facts.files:
        return None
    neighbours = read_png(folder / "neighbours.png") if facts.neighbours else None
    rows = ["generated", "nearest in features", "nearest in pixels"] * facts.neighbours
    columns = facts.columns if len(facts.columns) > 1 else []  # of one class, images stand in rows
    return Beside(columns, read_png(folder / "real.png"), facts.originals, neighbours, rows)


def read_copies(name: str) -> Copies | None:
    """Return samples/nearest/NAME; None where no image was looked for.

    Raises:
        ArtifactError: a file is missing or damaged; the message names it.
    """
    folder, facts = _nearest(name)
    if not facts.images:
        return None
    return Copies(facts, {how: read_png(folder / f"{space}.png") for space, how in _SPACES.items()})


def _written(name: str, scores: Mapping[str, float], images: int) -> str:
    """Return a number of `scores` of so many images as text: a fraction with its interval, others with their errors."""
    if name not in scores:
        return ""
    if name.startswith("copies_"):
        low, high = wilson(scores[name], images)
        return f"{percent(scores[name])} ({fixed(100 * low, 1)} to {fixed(100 * high, 1)})"
    if name.startswith("ct_"):
        return fixed(scores[name], 1)
    found = number(scores[name], scores.get(f"{name}_se"))
    return f"{found.text} ± {found.se_text}" if found.se_text else found.text
