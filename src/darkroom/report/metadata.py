"""Types of the artifact metadata that the page reads; a file with another structure is an error."""

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


class Catalog(Metadata):
    """data/catalog: classes, image counts by split and class, the format of images, parts, duplicates, leakage."""

    classes: list[str]
    images: dict[str, int]
    unlabelled: dict[str, int]
    captions: dict[str, int]
    counts: dict[str, dict[str, int]]
    image: dict[str, Any]
    parts: list[dict[str, Any]]
    duplicates: dict[str, Any]
    leakage: dict[str, Any] | None = None


class Floor(Metadata):
    """The noise floor of one extractor: scores of unseen real images (with n), and of two halves of the reference."""

    dim: int
    n: int
    kid_n: int
    held_out: Scores
    halves: Scores


class Reference(Metadata):
    """data/reference: splits of the real images, the noise floor by extractor, and the accuracy of the evaluator."""

    split: str
    held_out: str
    extractors: dict[str, Floor]
    evaluator: dict[str, Any] | None = None


class Samples(Metadata):
    """samples/NAME: classes, images in all and by class, condition, sampler settings, files next to the shards.

    split: the split of the originals, if images are sampled from embeddings or captions.
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


class NearestFacts(Metadata):
    """samples/nearest/NAME: images of each set, scores of the samples and of held-out images.

    held_out: `split` and `images` of the real images that no training saw.
    columns: the classes of the columns in pictures of real images and samples.
    originals: the split of the real images, if they are those of the samples' captions; they have no columns.
    neighbours: rows of samples above their neighbours.
    """

    images: int
    held_out: dict[str, Any] = {}
    train: int = 0
    scores: Scores = {}
    floor: Scores = {}
    columns: list[str] = []
    originals: str = ""
    neighbours: int = 0
    files: dict[str, str] = {}


class PriorFacts(Metadata):
    """models/prior: whether it was trained, and its scores with their split and number of images."""

    trained: bool
    scores: dict[str, Any] = {}


class Reconstructions(Metadata):
    """samples/reconstructions: number of originals, their split, and the size of the codebook or 0."""

    images: int
    split: str
    codes: int


class Protocol(Metadata):
    """The counts and the reference of a protocol, which must be equal to compare two scores.

    diversity: `pairs` of generated images of one class, and `pairs_held_out` of real ones.
    """

    n_fake: int
    reference: dict[str, Any]
    diversity: dict[str, Any] = {}


class LabelBaselines(Metadata):
    """The label accuracy of held-out real images of the same classes, and of a constant answer."""

    constant: float
    held_out: float | None = None
    held_out_se: float | None = None
    held_out_confident: float | None = None


class Baselines(Metadata):
    """Baselines, which do not depend on the model.

    held_out: the noise floor by extractor: scores of held-out real images of the same number and classes, and `n`.
    train: scores of as many training images against held-out images, if these are also a reference.
    label_accuracy: that of held-out real images, and of a constant answer.
    diversity: that of held-out real images, and `n`, the number of their pairs.
    scene_reader: scores of `originals` and `renders`.
    clip_unrelated: scores of unrelated pairs.
    """

    held_out: dict[str, Scores] = {}
    train: dict[str, Scores] = {}
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
    def split(self) -> str:
        """The split of the real images that they are compared with."""
        return str(self.protocol.reference["split"])


class ClipCard(Metadata):
    """How CLIP's scores were made (`images`, `captions`, `reference`), and the score of a constant answer."""

    protocol: dict[str, Any]
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
        raise ArtifactError(f"{path}: `{key}`: {fault['msg']}; rerun the stage that writes this file.") from error


def read_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        ArtifactError: missing, or not JSON; the message names the file.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing: run `dvc repro`.") from error
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged ({error}): restore it with `dvc checkout {path}`.") from error
