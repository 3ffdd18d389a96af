"""The page's pictures of real images beside generated ones: at random, of their captions, and nearest to them."""

from dataclasses import dataclass
from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest
from darkroom.report.metadata import NearestFacts, typed
from darkroom.report.pictures import Picture, read_png

NEAREST, SAMPLES = Path("samples/nearest"), Path("samples")


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


def read_beside(name: str) -> Beside | None:
    """Return the pictures of samples/nearest/NAME; None where there are no samples.

    Raises:
        ArtifactError: a file is missing or damaged, or was made of other samples; the message names it.
    """
    folder = NEAREST / name
    facts = typed(NearestFacts, read_manifest(folder, "nearest"), folder)
    if "real.png" not in facts.files:
        return None
    if facts.samples != manifest_hash(SAMPLES / name):
        raise ArtifactError(
            f"{folder} was made from other {SAMPLES / name}: run `dvc repro`, which makes what is out of date again."
        )
    neighbours = read_png(folder / "neighbours.png") if facts.neighbours else None
    rows = ["generated", "nearest in features", "nearest in pixels"] * facts.neighbours
    columns = facts.columns if len(facts.columns) > 1 else []  # of one class, images stand in rows
    return Beside(columns, read_png(folder / "real.png"), facts.originals, neighbours, rows)
