"""The metadata of artifacts that the page reads, as types: another structure is refused before the page is made."""

import json
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from darkroom.artifacts.manifest import ArtifactError

Finite = Annotated[float, Field(allow_inf_nan=False)]
Scores = dict[str, Finite]
Kind = TypeVar("Kind")


class Metadata(BaseModel):
    """Some keys of a JSON file; other keys are ignored."""

    model_config = ConfigDict(frozen=True)


class ImageFacts(Metadata):
    """The format of the images: size in pixels, channels (RGB, RGBA or L), and file format ("mixed" for several)."""

    size: int
    channels: str
    format: str


class Part(Metadata):
    """A part of the data.

    shorter_side: minimum, median and maximum over the originals, in pixels; empty without images.
    enlarged: the number of images whose original was smaller.
    quarantine: the number of damaged samples by action (quarantine, repair or keep) and reason.
    passed_over: counts of files that are in no list, see `darkroom.data.sources.walk`.
    """

    name: str
    images: int
    shards: int
    bytes: int
    shorter_side: list[int]
    enlarged: int
    quarantine: dict[str, dict[str, int]]
    passed_over: dict[str, Any] = Field(default_factory=dict)


class Duplicates(Metadata):
    """The number of images that are copies of an earlier one, in all, from another part, and from another split."""

    images: int
    across_parts: int
    across_splits: int


class Catalog(Metadata):
    """data/catalog: classes, and image counts by split and class."""

    classes: list[str]
    images: dict[str, int]
    unlabelled: dict[str, int]
    captions: dict[str, int]
    counts: dict[str, dict[str, int]]
    image: ImageFacts
    parts: list[Part]
    duplicates: Duplicates


class Floor(Metadata):
    """The noise floor of one extractor: scores of unseen real images (with n), and of two halves of the reference."""

    dim: int
    n: int
    kid_n: int
    held_out: Scores
    halves: Scores


class Recognised(Metadata):
    """Held-out images of a class: their number, the fraction recognised, and that of a likeliest class of 0.9."""

    n: int
    accuracy: float
    confident: float


class EvaluatorFacts(Metadata):
    """What the evaluator of labels is worth: its accuracy on held-out real images, over images, classes, by class."""

    n: int
    accuracy: float | None = None
    mean_class_accuracy: float | None = None
    by_class: dict[str, Recognised] = {}


class Reference(Metadata):
    """data/reference: splits of the real images, the noise floor by extractor, the evaluator of labels."""

    split: str
    held_out: str
    extractors: dict[str, Floor]
    evaluator: EvaluatorFacts | None = None


class Samples(Metadata):
    """samples/NAME: classes, images of all and of each class, condition, sampler settings, files beside shards.

    split: of the originals, where images are sampled from embeddings or captions.
    reason: why there are no images.
    """

    classes: list[str]
    images: int
    condition: str = "class"
    counts: dict[str, int] = {}
    split: str = ""
    sampler: dict[str, Any]
    files: dict[str, str] = {}
    reason: str = ""


class HeldOut(Metadata):
    """The real images that no training saw: their split, and how many were looked for."""

    split: str
    images: int


class NearestFacts(Metadata):
    """samples/nearest/NAME: how many images of each set, scores of the samples and of held-out ones.

    nearer: in each space, in which fraction of pairs a sample lies nearer to the train split than a held-out image.
    columns: the classes of the columns of the pictures of real images beside samples.
    originals: the split of the real images, where they are those of the samples' captions; they stand in no column.
    neighbours: rows of samples above their neighbours.
    reason: why no image was looked for.
    """

    images: int
    held_out: HeldOut = HeldOut(split="", images=0)
    train: int = 0
    scores: Scores = {}
    floor: Scores = {}
    nearer: Scores = {}
    columns: list[str] = []
    originals: str = ""
    neighbours: int = 0
    files: dict[str, str] = {}
    reason: str = ""


class PriorFacts(Metadata):
    """models/prior: whether it was trained, and its scores with their split and number of images."""

    trained: bool
    scores: dict[str, Any] = {}


class Reconstructions(Metadata):
    """samples/reconstructions: number of originals, their split, and the size of the codebook or 0."""

    images: int
    split: str
    codes: int


class CardReference(Metadata):
    """The real images of a score: their split."""

    split: str


class Protocol(Metadata):
    """What must be equal before two scores compare; of it the counts and the reference.

    diversity: `pairs` of generated images of one class, and `pairs_held_out` of real ones.
    """

    n_fake: int
    reference: CardReference
    diversity: dict[str, Any] = {}


class LabelBaselines(Metadata):
    """Beside a label accuracy: that of held-out real images of the same classes, and a constant answer's."""

    constant: float
    held_out: float | None = None
    held_out_se: float | None = None
    held_out_confident: float | None = None


class LeftOut(Metadata):
    """Classes that a noise floor leaves out, the fraction of the samples that is of these, scores of the others."""

    classes: list[str]
    fraction: float
    samples: dict[str, Scores]


class Baselines(Metadata):
    """What is known without the model.

    held_out: the noise floor by extractor: what held-out real images of the same number and classes score, and `n`.
    train: where held-out images are a reference too, what as many training images score against them.
    left_out: where one of these two leaves classes out, by its name, what the samples of the other classes score.
    label_accuracy: what they and a constant answer get.
    diversity: that of held-out real images, and `n`, their pairs.
    scene_reader: scores of `originals` and `renders`.
    clip_unrelated: scores of unrelated pairs.
    """

    held_out: dict[str, Scores] = {}
    train: dict[str, Scores] = {}
    left_out: dict[str, LeftOut] = {}
    label_accuracy: LabelBaselines | None = None
    diversity: Scores = {}
    scene_reader: dict[str, Scores] = {}
    clip_unrelated: Scores = {}


class Card(Metadata):
    """How the scores of a metrics file were made."""

    protocol: Protocol
    baselines: Baselines = Baselines()
    notes: list[str]

    @property
    def n_fake(self) -> int:
        """The number of images scored."""
        return self.protocol.n_fake

    @property
    def reference(self) -> CardReference:
        """The real images that they are compared with."""
        return self.protocol.reference


class ClipProtocol(Metadata):
    """Of CLIP's scores: the number of images and of distinct captions."""

    images: int
    captions: int
    reference: CardReference


class ClipCard(Metadata):
    """How CLIP's scores were made, and what a constant answer gets beside a score."""

    protocol: ClipProtocol
    baselines: dict[str, Scores] = {}


def typed(kind: type[Kind], value: Any, path: Path) -> Kind:
    """Return a JSON value as `kind`.

    Raises:
        ArtifactError: a key is missing or of another type; the message names the file and the first such key.
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
        ArtifactError: missing, or not JSON; the message names the file.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing: run the stage that writes it (`dvc repro`).") from error
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged ({error}): restore it with `dvc checkout {path}`.") from error
