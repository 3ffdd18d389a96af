"""The page's strips: the same images at points of a training, as it left them beside its curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from darkroom.report.metadata import Metadata, read_json, typed
from darkroom.report.pictures import Picture, read_png

PICTURE, FACTS = "strip.png", "strip.json"


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
    if not (folder / FACTS).is_file():
        return None
    facts = typed(StripFacts, read_json(folder / FACTS), folder / FACTS)
    picture = read_png(folder / PICTURE)
    rows = ["original"] * facts.originals + [f"{images:,}" for images in facts.images]
    columns = list(classes[: picture.columns(len(rows))]) if facts.by_class else facts.captions
    return Strip(picture, rows, columns)
