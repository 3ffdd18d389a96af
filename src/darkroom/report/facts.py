"""What the page needs of each artifact, as types: another shape is refused before anything is drawn."""

import json
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from darkroom.artifacts.manifest import ArtifactError

Finite = Annotated[float, Field(allow_inf_nan=False)]
Scores = dict[str, Finite]
Kind = TypeVar("Kind")


class Facts(BaseModel):
    """Some keys of a JSON file; others may stand beside them."""

    model_config = ConfigDict(frozen=True)


class ImageFacts(Facts):
    """How an image is stored: size in pixels, RGB, RGBA or L, and the format, "mixed" where parts differ."""

    size: int
    channels: str
    format: str


class Damage(Facts):
    """Samples that something was wrong with, by reason: left out, mended, or kept as they are."""

    quarantine: dict[str, int]
    repair: dict[str, int]
    keep: dict[str, int]


class Part(Facts):
    """A part of the data.

    shorter_side: the least, the median and the greatest of the originals, in pixels; empty where there is no image.
    enlarged: images whose original was smaller than it is stored.
    """

    name: str
    images: int
    shards: int
    bytes: int
    shorter_side: list[int]
    enlarged: int
    quarantine: Damage


class Duplicates(Facts):
    """Images that are copies of an earlier one, and how many of them in another part and in another split."""

    images: int
    across_parts: int
    across_splits: int


class Catalog(Facts):
    """data/catalog: classes, images of each split, and of each class in each split."""

    classes: list[str]
    images: dict[str, int]
    unlabelled: dict[str, int]
    captions: dict[str, int]
    counts: dict[str, dict[str, int]]
    image: ImageFacts
    parts: list[Part]
    duplicates: Duplicates


class Floor(Facts):
    """What real images score through one extractor: unseen ones (with n), and two halves of the reference."""

    dim: int
    n: int
    kid_n: int
    held_out: Scores
    halves: Scores


class Reference(Facts):
    """data/reference: which real images, and the noise floor by extractor."""

    catalog: str
    split: str
    held_out: str
    extractors: dict[str, Floor]


class Samples(Facts):
    """samples/generator: how many images of which classes, and how they were made."""

    classes: list[str]
    images: int
    sampler: dict[str, Any]


class ToldSamples(Facts):
    """samples/decoder and samples/text: how many images, of which split, how they were made; `reason` without any."""

    images: int
    split: str = ""
    condition: str = ""
    prior: str | None = None
    sampler: dict[str, Any]
    files: dict[str, str]
    reason: str = ""


class PriorFacts(Facts):
    """models/prior: whether it was trained, and what it scores, with the split and the images of it."""

    trained: bool
    scores: dict[str, Any] = {}


class Reconstructions(Facts):
    """samples/reconstructions: how many originals are shown, of which split, and the size of the codebook or 0."""

    images: int
    split: str
    codes: int


class CardReference(Facts):
    """The real images of a score: the hash of their manifest, and their split."""

    id: str
    split: str


class ReaderFacts(Facts):
    """What the scene reader reads right: of the originals of the samples, and of renders that it has not seen."""

    originals: Scores
    renders: Scores


class Card(Facts):
    """The protocol of a metrics file; of images with originals also what bounds their scores."""

    n_fake: int
    samples: str | None = None
    reference: CardReference
    formulas: dict[str, str]
    notes: list[str]
    scene_reader: ReaderFacts | None = None
    clip_unrelated: Scores = {}


class ClipCard(Facts):
    """The protocol of CLIP's scores: how many images of the split, and how many captions that differ."""

    images: int
    captions: int
    reference: CardReference
    formulas: dict[str, str]


def typed(kind: type[Kind], value: Any, path: Path) -> Kind:
    """Return a JSON value as `kind`.

    Raises:
        ArtifactError: a key is missing or of another type; names the file and the first such key.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"])) or "the file"
        raise ArtifactError(f"{path}: `{key}`: {fault['msg']}; run the stage that writes it again.") from error


def read_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        ArtifactError: missing, or not JSON; names the file.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing: run the stage that writes it (`dvc repro`).") from error
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged ({error}): restore it with `dvc checkout {path}`.") from error
