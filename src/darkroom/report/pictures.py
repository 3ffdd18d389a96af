"""Pictures embedded in the page: PNG as base64, SVG unchanged; sample evolutions, which lie next to the curves."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from PIL import Image
from pydantic import Field

from darkroom.artifacts.manifest import ArtifactError
from darkroom.report.metadata import Metadata, read_json, typed

_PADDING = 2  # pixels between and around the images of a grid


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
        """Return (columns, rows) of a full grid of `images` square images; None if the grid is not full."""
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
        raise ArtifactError(f"{path} is missing: run `dvc repro`.") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise ArtifactError(f"{path} is not a complete PNG: restore it with `dvc checkout {path.parent}`.") from error
    return Picture(f"data:image/png;base64,{base64.b64encode(data).decode()}", width, height)


def read_svg(path: Path) -> Markup:
    """Return the drawing of the DAG for the page.

    Raises:
        ArtifactError: missing, or not a whole SVG document; the message names the file.
    """
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing: draw it with `make format`.") from error
    if not (text.startswith("<svg") and text.endswith("</svg>\n")):
        raise ArtifactError(f"{path} is not a complete SVG: draw it again with `make format`.")
    return Markup(text)


class _EvolutionFacts(Metadata):
    """sample_evolution.json: images seen at each row, whether originals stand above, whether column i is of class i.

    captions: captions of the columns, if they are images of texts.
    """

    images: list[int]
    originals: bool
    by_class: bool
    captions: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class SampleEvolution:
    """The sample evolution of a training, the names of its rows, and of its columns if these are classes or texts."""

    picture: Picture
    rows: list[str]
    columns: list[str]


def read_sample_evolution(folder: Path, classes: Sequence[str]) -> SampleEvolution | None:
    """Return the sample evolution of the training that wrote `folder`; None where it drew none.

    Raises:
        ArtifactError: a file is missing or damaged; the message names it.
    """
    path = folder / "sample_evolution.json"
    if not path.is_file():
        return None
    facts, picture = typed(_EvolutionFacts, read_json(path), path), read_png(folder / "sample_evolution.png")
    rows = ["original"] * facts.originals + [f"{images:,}" for images in facts.images]
    columns = list(classes[: picture.columns(len(rows))]) if facts.by_class else facts.captions
    return SampleEvolution(picture, rows, columns)
