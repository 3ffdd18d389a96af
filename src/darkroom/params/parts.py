"""The section `parts`, which lists the data, and the sections of the sources with their settings."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field

from darkroom.errors import DarkroomError
from darkroom.kinds import Kinds
from darkroom.params.section import NO_FILE, PARAMS, Overrides, PartName, Section, Seed, validate

SourceName = Literal["digits", "shapes", "torchvision", "folder", "webdataset", "hub"]


class Part(Section):
    """A slice [start, stop) of a source, in images (`webdataset`: in shards), or every `every`-th image of it."""

    source: SourceName
    """Source of the images; the section of its name holds its settings: docs/how-to/choose-data.md."""
    path: str = NO_FILE
    """The local file or folder that the source reads; data/none: none."""
    start: Annotated[int, Field(ge=0)] = 0
    """First image of the slice, counted from 0; webdataset: first shard."""
    stop: Annotated[int, Field(gt=0)] | None = None
    """One past the last image of the slice; null: to the end."""
    every: Annotated[int, Field(gt=0)] = 1
    """N: read every N-th image of the slice, for a trial on fewer images. Not supported by webdataset."""
    embeddings: str = NO_FILE
    """A folder of precomputed CLIP embeddings, see `embed_clip.imported`; data/none: none."""
    settings: Overrides = Field(default_factory=dict)
    """Keys that override the source's section for this part."""

    def _misfits(self) -> Iterator[str]:
        if self.stop is not None and self.stop <= self.start:
            yield f"stop ({self.stop}) must be above start ({self.start})"
        if self.source in ("digits", "shapes") and self.path != NO_FILE:
            yield f"{self.source} reads no file, but path is {self.path}: set path to data/none"
        if self.source == "folder" and self.path == NO_FILE:
            yield "folder needs a path: the folder that it reads"
        if self.source == "webdataset" and self.every > 1:
            yield "webdataset reads all shards from start to stop: set every to 1"
        if self.source == "shapes" and self.stop is None:
            yield "shapes has no end: set stop to the number of scenes"

    @property
    def images(self) -> int | None:
        """Number of images that are read; None: not known before they are read."""
        if self.stop is None or self.source == "webdataset":
            return None
        return -(-(self.stop - self.start) // self.every)


# In the order of their names: DVC compares mappings without order, so no result may depend on it.
Parts = Annotated[dict[PartName, Part], Field(min_length=1), AfterValidator(lambda parts: dict(sorted(parts.items())))]


# The labels that are allowed; None: all. Letters in one form, as labels have them, see `label_of`.
Class = Annotated[str, AfterValidator(lambda name: unicodedata.normalize("NFC", name))]
Classes = Annotated[list[Class], Field(min_length=1)] | None
# Of a member of a webdataset sample: its name after the first dot.
Ending = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")]
JsonField = Annotated[str, Field(pattern=r"^json:.+$")]
SceneKind = Literal["position", "count", "relation", "single"]


class Digits(Section):
    """The digits data set of scikit-learn."""

    caption: Annotated[str, Field(pattern=r"^([^{}]|\{(word|label)\})*$")] = "a handwritten {word}"
    """Caption of an image; {word}: zero to nine, {label}: 0 to 9."""


class Shapes(Section):
    """Rendered, captioned scenes of coloured forms."""

    seed: Seed = 0
    """Seed of the scenes."""
    size: Annotated[int, Field(ge=8)] = 64
    """Pixels, height and width of a scene."""
    kinds: Annotated[list[SceneKind], Field(min_length=1)] = ["position", "count", "relation"]
    """position: one form at a place; count: two or three; relation: one left of another; single: one on a colour."""
    transparent: bool = False
    """Forms on a transparent background, RGBA."""

    def _misfits(self) -> Iterator[str]:
        if self.transparent and "single" in self.kinds:
            yield "transparent leaves out the background, which captions of the kind single name: remove one of them"


class Torchvision(Section):
    """A classification data set of torchvision."""

    dataset: str = "CIFAR10"
    """Name in torchvision.datasets."""
    split: str | None = "train"
    """train, test or another of the data set; null: it has none."""
    options: dict[str, bool | int | str] = Field(default_factory=dict)
    """Additional arguments of its class: `split: letters` for EMNIST, `size: 160px` for Imagenette."""
    download: bool = True
    """Download it if it is missing, to .darkroom/downloads/torchvision if the part's path is data/none."""
    caption: Annotated[str, Field(pattern=r"^([^{}]|\{label\})*$")] | None = "a photo of a {label}"
    """Caption of an image; {label}: the name of the class; null: no captions."""
    mirror: bool = False
    """Mirror images are equally valid: half of the images are mirrored in training."""


class Folder(Section):
    """Image files in a folder."""

    label: Literal["none", "parent", "top", "metadata"] = "parent"
    """parent: the folder of the file; top: the first folder below the path; metadata: a column of a table."""
    label_column: str = "label"
    """Column with the labels in metadata.jsonl, .csv or .parquet, whose column file_name names the files."""
    repeats: bool = False
    """true: folders are named as for kohya's trainers; 10_cat has the label cat, and 10 is ignored."""
    caption: Literal["none", "txt", "metadata"] = "none"
    """txt: KEY.txt, KEY.caption or KEY.png.txt next to KEY.png; metadata: a column of the same table."""
    caption_column: str = "text"
    """Column with the captions in the same table."""
    classes: Classes = None
    """Allowed labels; null: all."""
    mirror: bool = False
    """Mirror images are equally valid: half of the images are mirrored in training."""


class Webdataset(Section):
    """Existing shards: tars with images, captions, labels and facts."""

    url: str | None = None
    """An fsspec URL, with {00000..00099} for a range; null: the part's path."""
    image: Annotated[list[Ending], Field(min_length=1)] = ["jpg", "jpeg", "png", "webp"]
    """Extensions of the image files in a shard."""
    label: Ending | JsonField | None = "cls"
    """Extension of the label files, or json:FIELD; null: no labels."""
    caption: Ending | JsonField | None = "txt"
    """Extension of the caption files, or json:FIELD; null: no captions."""
    classes: Classes = None
    """Class names in the order of the numbers in cls, or the allowed labels; null: all."""
    shard_in_key: bool = False
    """Prefix each key with the shard's name, for shards that all start at the same key."""
    repack: bool = False
    """false: index the shards in place and prepare images when they are read; true: write prepared shards."""
    damaged_shard: Literal["stop", "quarantine"] = "stop"
    """What to do with a tar that is cut off or has a damaged header."""
    mirror: bool = False
    """Mirror images are equally valid: half of the images are mirrored in training."""

    def _misfits(self) -> Iterator[str]:
        for place, name in enumerate(self.classes or []):
            if re.fullmatch(r"-?[0-9]+", name) and name != str(place):
                yield (
                    f"class {name!r} is at position {place}, so the label {name} could mean this class or the class "
                    "with that number: use a name with a letter, or leave `classes` empty"
                )


class Hub(Section):
    """A data set of the Hugging Face Hub."""

    dataset: str = "ylecun/mnist"
    """Name of the data set on the Hub."""
    configuration: str | None = None
    """Configuration, where the data set has several; null: its only one."""
    split: str = "train"
    """Split of the data set."""
    revision: str | None = None
    """Commit (the data stay the same), branch or tag; null: the newest."""
    image: str = "image"
    """Column of the images."""
    label: str | None = "label"
    """Column of the labels; null: none."""
    caption: str | None = None
    """Column of the captions; null: none."""
    mirror: bool = False
    """Mirror images are equally valid: half of the images are mirrored in training."""


class Sources(Section):
    """The sections of the sources; a part needs that of its own."""

    digits: Digits | None = None
    shapes: Shapes | None = None
    torchvision: Torchvision | None = None
    folder: Folder | None = None
    webdataset: Webdataset | None = None
    hub: Hub | None = None


# Each is called with its settings, the `path` of the part, or None, and the column of groups, if any.
SOURCES = Kinds(
    package="darkroom.data.sources",
    parts={"source": "ingest"},
    kinds={
        "digits": {"source": "digits:Digits"},
        "shapes": {"source": "shapes:Shapes"},
        "torchvision": {"source": "torchvision_sets:Torchvision"},
        "folder": {"source": "folder:Folder"},
        "webdataset": {"source": "webdataset:Webdataset"},
        "hub": {"source": "hub:Hub"},
    },
)
SECTIONS: dict[str, type[Section]] = {name: get_args(of.annotation)[0] for name, of in Sources.model_fields.items()}


def settings_of(name: str, part: Part, section: Section | Mapping[str, Any] | None) -> Any:
    """Return the settings of a part's source: its section of params.yaml with the part's overrides.

    Raises:
        DarkroomError: the section is missing, or a key of `settings` is unknown or has a value that is not allowed.
    """
    if section is None:
        raise DarkroomError(f"{PARAMS}: the section `{part.source}` is missing: add `{part.source}: {{}}`.")
    values = section.model_dump() if isinstance(section, Section) else dict(section)
    return validate(SECTIONS[part.source], {**values, **part.settings}, f"parts.{name}.settings")
