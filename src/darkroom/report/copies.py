"""The section of the page on samples/nearest: real and generated images, and images near the training images."""

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
    """A score of the samples, and the same score of held-out images."""

    score: Score
    run: str
    held_out: str


@dataclass(frozen=True)
class Nearest:
    """The content of samples/nearest for one set of samples.

    columns: the classes of the columns of `real` and `neighbours`; empty where the samples have no classes or one.
    real: real images of these classes, drawn at random, or of the samples' captions; None where there are no samples.
    neighbours: samples, and below each the nearest training images; None where no image was compared.
    rows: the names of the rows of `neighbours`.
    pictures: the closest pairs, by the method of comparison; empty where no image was compared.
    """

    facts: NearestFacts
    columns: list[str]
    real: Picture | None
    neighbours: Picture | None
    rows: list[str]
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


def read_nearest(name: str) -> Nearest:
    """Return samples/nearest/NAME.

    Raises:
        ArtifactError: a file is missing or damaged; the message names it.
    """
    folder = Path("samples/nearest") / name
    facts = typed(NearestFacts, read_manifest(folder, "nearest"), folder)
    return Nearest(
        facts,
        columns=facts.columns if len(facts.columns) > 1 else [],  # images of a single class fill rows
        real=read_png(folder / "real.png") if "real.png" in facts.files else None,
        neighbours=read_png(folder / "neighbours.png") if facts.neighbours else None,
        rows=["generated", "nearest in features", "nearest in pixels"] * facts.neighbours,
        pictures={text: read_png(folder / f"{space}.png") for space, text in _SPACES.items()} if facts.images else {},
    )


def _written(name: str, scores: Mapping[str, float], images: int) -> str:
    """Return a score of a number of images as text: a fraction with its interval, others with their errors."""
    if name not in scores:
        return ""
    if name.startswith("copies_"):
        low, high = wilson(scores[name], images)
        return f"{percent(scores[name])} ({fixed(100 * low, 1)} to {fixed(100 * high, 1)})"
    if name.startswith("ct_"):
        return fixed(scores[name], 1)
    formatted = number(scores[name], scores.get(f"{name}_se"))
    return f"{formatted.text} ± {formatted.se_text}" if formatted.se_text else formatted.text
