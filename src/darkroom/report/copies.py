"""The part of the page on samples/nearest: real images beside generated ones, and what is near the training images."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from darkroom.artifacts.manifest import read_manifest
from darkroom.metrics.score import wilson
from darkroom.report.metadata import NearestFacts, typed
from darkroom.report.numbers import fixed, number, percent
from darkroom.report.pictures import Picture, read_png
from darkroom.report.scores import title

_SPACES = {
    "pixels": "pixel by pixel, or mirrored",
    "moved": "also moved by up to a sixteenth of the side",
    "features": "in features of the in-domain extractor",
}
_CHANCE = 3  # standard deviations of C_T that chance alone seldom reaches


@dataclass(frozen=True)
class Line:
    """A number of the samples, the same of held-out images, and what it says."""

    name: str
    title: str
    run: str
    held_out: str
    says: str


@dataclass(frozen=True)
class Copies:
    """What was found of some samples, and the pictures of the closest pairs, with how they were compared."""

    facts: NearestFacts
    pictures: dict[str, Picture]

    @property
    def lines(self) -> list[Line]:
        """The rows of the table."""
        return [*_shares(self.facts), *_nearness(self.facts), *_gaps(self.facts), *_seen(self.facts)]


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


def _share(fraction: float, n: int) -> tuple[str, tuple[float, float]]:
    low, high = wilson(fraction, n)
    return f"{percent(fraction)} ({fixed(100 * low, 1)} to {fixed(100 * high, 1)})", (low, high)


def _shares(facts: NearestFacts) -> Iterator[Line]:
    for space, how in _SPACES.items():
        name = f"copies_{space}"
        run, inside = _share(facts.scores[name], facts.images)
        real, floor = _share(facts.floor[name], facts.held_out["images"])
        what = f"are more than three times as near to one training image as to any other, {how}"
        many = inside[0] > floor[1]
        compared = "More" if many else "Fewer" if inside[1] < floor[0] else "No more"
        says = f"{compared} generated images than held-out ones {what}{': look at the pairs below' * many}."
        yield Line(name, title(name), run, real, says)


def _nearness(facts: NearestFacts) -> Iterator[Line]:
    for space in _SPACES:
        name = f"ct_{space}"
        z, share = facts.scores[name], percent(facts.nearer[space])
        if z < -_CHANCE:
            says = (
                f"Nearer to training images than held-out images are, in {share} of all comparisons: as copies are, "
                "and as typical or blurred images are, say of strong guidance. The pairs tell which."
            )
        elif z > _CHANCE:
            says = f"Further from training images than held-out images are: nearer in {share} of all comparisons only."
        else:
            says = f"As near to training images as held-out images are: nearer in {share} of all comparisons."
        yield Line(name, title(name), fixed(z, 1), fixed(facts.floor[name], 1), says)


def _gaps(facts: NearestFacts) -> Iterator[Line]:
    for name in ("fd_gap", "kid_gap"):
        if name not in facts.scores:
            continue
        run = number(facts.scores[name], facts.scores[f"{name}_se"])
        real = number(facts.floor[name], facts.floor[f"{name}_se"]) if name in facts.floor else None
        if abs(run.value) <= 2 * (run.se or 0.0):
            says = "As a whole as near to held-out images as to training images, within two standard errors."
        elif run.value < 0:
            says = "As a whole nearer to training images than to held-out ones."
        else:
            says = "As a whole nearer to held-out images than to training ones."
        yield Line(
            name, title(name), f"{run.text} ± {run.se_text}", f"{real.text} ± {real.se_text}" if real else "", says
        )


def _seen(facts: NearestFacts) -> Iterator[Line]:
    if times := facts.scores.get("times_seen"):
        says = f"The training saw each of the {facts.train:,} images so often, on average."
        yield Line("times_seen", title("times_seen"), number(times).text, "", says)
