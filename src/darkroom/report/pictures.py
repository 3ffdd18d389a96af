"""Pictures embedded in the page: PNG as base64, SVG unchanged; real images beside generated ones; strips.

A strip shows the same images at points of a training, as it left them beside its curves.
"""

import base64
import io
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from PIL import Image
from pydantic import Field

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest
from darkroom.report.metadata import Metadata, NearestFacts, read_json, typed

NEAREST, SAMPLES = Path("samples/nearest"), Path("samples")
STRIP, STRIP_FACTS = "strip.png", "strip.json"  # beside the curves of a training
_PADDING = 2  # pixels between and around the images of a grid
_SVG = "{http://www.w3.org/2000/svg}"
# The allowed elements of a drawing, without scripts, links and foreign documents.
_ELEMENTS = {"svg", "title", "desc", "g", "path", "rect", "text"}


@dataclass(frozen=True)
class Picture:
    """A PNG: its bytes as a data URL, and its size in pixels."""

    url: str
    width: int
    height: int

    def rows(self, columns: int) -> int:
        """Return the number of rows of a grid of square images with `columns` columns.

        Padding and images are squares, so (width - padding) : (height - padding) is columns : rows.
        """
        return round((self.height - _PADDING) * columns / (self.width - _PADDING))

    def columns(self, rows: int) -> int:
        """Return the number of columns of a grid of square images with `rows` rows."""
        return round((self.width - _PADDING) * rows / (self.height - _PADDING))

    def grid(self, images: int) -> tuple[int, int] | None:
        """Return (columns, rows) of a full grid of `images` square images; None where the grid is not full."""
        rows = round(math.sqrt(images * (self.height - _PADDING) / (self.width - _PADDING)))
        if not rows or images % rows:
            return None
        columns = images // rows
        fits = (self.width - _PADDING) * rows == (self.height - _PADDING) * columns
        return (columns, rows) if fits else None


def read_png(path: Path) -> Picture:
    """Return a PNG for the page.

    Raises:
        ArtifactError: missing, or not a complete PNG; the message names the file.
    """
    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            image.load()
            width, height = image.size
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing: run the stage that makes it (`dvc repro`).") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise ArtifactError(f"{path} is not a whole PNG: restore it with `dvc checkout {path.parent}`.") from error
    return Picture(f"data:image/png;base64,{base64.b64encode(data).decode()}", width, height)


def read_svg(path: Path) -> Markup:
    """Return a drawing for the page, after checking that it holds only shapes and text.

    Raises:
        ArtifactError: missing, not SVG, or with other elements; the message names the file.
    """
    try:
        text = path.read_text()
        root = ElementTree.fromstring(text)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing: draw it with `darkroom dag --write`.") from error
    except (ElementTree.ParseError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path} is damaged ({error}): draw it with `darkroom dag --write`.") from error
    for element in root.iter():
        name = str(element.tag).removeprefix(_SVG)
        if name not in _ELEMENTS or any("href" in key or key.startswith("on") for key in element.attrib):
            raise ArtifactError(f"{path} holds <{name}> beside shapes and text: draw it with `darkroom dag --write`.")
    return Markup(text)


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


class StripFacts(Metadata):
    """strip.json: images seen at each row, whether a row of originals stands above, whether column i is of class i.

    captions: of the columns, where they are of texts.
    """

    images: list[int]
    originals: bool
    by_class: bool
    captions: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class Strip:
    """The strip of a training, with the names of its rows, and of its columns where these are classes or texts."""

    picture: Picture
    rows: list[str]
    columns: list[str]


def read_strip(folder: Path, classes: Sequence[str]) -> Strip | None:
    """Return the strip of the training that wrote `folder`; None where it drew none.

    Raises:
        ArtifactError: a file is missing or damaged; the message names it.
    """
    if not (folder / STRIP_FACTS).is_file():
        return None
    facts = typed(StripFacts, read_json(folder / STRIP_FACTS), folder / STRIP_FACTS)
    picture = read_png(folder / STRIP)
    rows = ["original"] * facts.originals + [f"{images:,}" for images in facts.images]
    columns = list(classes[: picture.columns(len(rows))]) if facts.by_class else facts.captions
    return Strip(picture, rows, columns)
