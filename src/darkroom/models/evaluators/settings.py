"""The sections that the trainings of evaluators and teacher read, and a check of published weights. Loads no torch."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from darkroom.models.tokenizers.sections import TEACHER
from darkroom.params.fits import refuse
from darkroom.params.reference_stats import CLIP_URL, DINOV2_L
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Fraction, Positive, Rate, Section, Seed, Warmup, Weight
from darkroom.params.training import Optimizer, Schedule, Training


class ExtractorModel(Section):
    """The small classifier whose penultimate features the scores compare."""

    channels: Annotated[list[Positive], Field(min_length=1)] = [32, 64, 64]
    """Width of each level; each but the first halves the resolution."""
    features: Positive = 64
    """Length of the feature vector that the scores compare."""
    dropout: Fraction = 0.2
    """Fraction of features dropped in training."""


class ExtractorTraining(Training):
    """The training of the extractor."""

    images: Positive = 48_000
    learning_rate: Rate = 0.003
    warmup: Warmup = 14_400
    optimizer: Optimizer = "muon"
    weight_decay: Weight = 0.01
    log_every: Positive = 960
    validate_every: Positive = 4800


class TrainExtractor(Section):
    """The extractor and its training."""

    model: ExtractorModel = ExtractorModel.model_construct()
    """Size of the classifier."""
    balanced: bool = True
    """Equal weights for all classes, by logit adjustment; false: weights by frequency."""
    training: ExtractorTraining = ExtractorTraining.model_construct()
    """The keys of `training` that have another value here."""


class ExtractorParams(Section):
    """What dvc.yaml gives to `train_extractor`."""

    run: Run
    train_extractor: TrainExtractor


class TeacherModel(Section):
    """The small classifier whose features the perceptual losses compare."""

    channels: Annotated[list[Positive], Field(min_length=1)] = [16, 32, 64, 64]
    """Width of each level; between two levels the resolution is halved."""
    layers: Positive = 1
    """Convolutions in each level."""


class TeacherAugment(Section):
    """The augmentation of the images."""

    shift: Annotated[int, Field(ge=0)] = 2
    """Largest shift in height and in width, in pixels."""
    contrast: Fraction = 0.2
    """Largest fraction by which the contrast is raised or lowered."""


class TeacherTraining(Training):
    """The training of the teacher."""

    seed: Seed = 1
    images: Positive = 9600
    learning_rate: Rate = 0.006
    schedule: Schedule = "cosine"
    warmup: Warmup = 960
    final_rate: Fraction = 0.01
    weight_decay: Weight = 0.01
    ema_decay: Fraction = 0.98


class TrainTeacher(Section):
    """The teacher and its training."""

    model: TeacherModel = TeacherModel.model_construct()
    """Size of the classifier."""
    augment: TeacherAugment = TeacherAugment.model_construct()
    """Augmentation of the images in training."""
    training: TeacherTraining = TeacherTraining.model_construct()
    """The keys of `training` that have another value here."""


class TeacherParams(Section):
    """What dvc.yaml gives to `train_teacher`."""

    run: Run
    train_teacher: TrainTeacher
    train_tokenizer: dict[str, Any]  # the kind, and the kinds' perceptual losses

    @property
    def idle(self) -> str | None:
        """The reason why nothing is trained, or None."""
        kind, section = self.train_tokenizer["kind"], f"train_tokenizer.{self.train_tokenizer['kind']}"
        if kind not in self.train_tokenizer:
            return f"the tokenizer `{kind}` has no perceptual loss"
        if (network := self.train_tokenizer[kind]["perceptual"]["network"]) != "teacher":
            return f"`{section}.perceptual.network` is {network}"
        if self.train_tokenizer["teacher"] != TEACHER:
            return f"`train_tokenizer.teacher` is {self.train_tokenizer['teacher']}"
        return None


GRID = 8  # cells in height and width, each with at most one thing's centre: boxes of forms are two cells wide
Kind = Literal["position", "count", "relation"]


class ReaderModel(Section):
    """The small network of the reader."""

    channels: Annotated[list[Positive], Field(min_length=1)] = [32, 64]
    """Width of each level; each halves the resolution."""
    layers: Annotated[int, Field(ge=0)] = 3
    """Convolutions after the levels."""


class ReaderAugment(Section):
    """The augmentation of the renders."""

    blur: Weight = 0.7
    """Largest standard deviation of the blur, in pixels; 0.0: none."""
    noise: Fraction = 0.1
    """Largest standard deviation of the noise, of pixels in [-1, 1]."""
    colour: Fraction = 0.1
    """Largest fraction by which each channel is scaled and shifted."""


class ReaderTraining(Training):
    """The training of the reader."""

    seed: Seed = 2
    images: Positive = 64_000
    learning_rate: Rate = 0.006
    warmup: Warmup = 19_200
    weight_decay: Weight = 0.01
    ema_decay: Fraction = 0.98
    log_every: Positive = 6400
    validate_every: Positive = 32_000


class TrainSceneReader(Section):
    """The reader and its training."""

    kinds: Annotated[list[Kind], Field(min_length=1)] = ["position", "count", "relation"]
    """Kinds of scenes to read, those of the source `shapes`."""
    held_out: Positive = 2000
    """Renders for validation while training, and the same number of others for the final accuracy."""
    model: ReaderModel = ReaderModel.model_construct()
    """Size of the network."""
    augment: ReaderAugment = ReaderAugment.model_construct()
    """Augmentation of the renders in training, as generated pictures are not quite clean."""
    training: ReaderTraining = ReaderTraining.model_construct()
    """The keys of `training` that have another value here."""


class Size(Section):
    """The part of `ingest` with the shape of the scored images."""

    image_size: Positive
    channels: Literal["RGB", "RGBA", "L"]


class SceneReaderParams(Section):
    """What dvc.yaml gives to `train_scene_reader`."""

    run: Run
    ingest: Size
    score_decoder: dict[str, Any]  # whether the scores use this network
    train_scene_reader: TrainSceneReader

    def _misfits(self) -> Iterator[str]:
        if not self.idle and self.ingest.channels == "L":
            yield "`ingest.channels` is L, which has no colours: set it to RGB, or `score_decoder.attributes` to none"

    @property
    def idle(self) -> str | None:
        """The reason why nothing is trained, or None."""
        return None if self.score_decoder["attributes"] == "scenes" else "`score_decoder.attributes` is none"


def cache() -> Path:
    """Return torch hub's folder of weights, as torch locates it."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("TORCH_HOME") or Path(home, "torch")).expanduser() / "hub" / "checkpoints"


def fits(params: Any) -> None:
    """Check that each file of weights exists, except for those that are downloaded on demand.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: a file is missing; names its key, the file, its URL and its hash.
    """
    section = params.reference_stats
    for name, url, fetched in (("dinov2", DINOV2_L, True), ("clip", CLIP_URL, False)):
        if name not in section.extractors:
            continue
        given = getattr(section, name)
        named = given.weights != NO_FILE
        path = Path(given.weights) if named else cache() / url.rpartition("/")[2]
        if not path.is_file() and (named or not fetched):
            refuse(
                f"`reference_stats.{name}.weights` is {given.weights}, but {path} does not exist: download {url} "
                f"(sha256 {given.sha256}) to it, or remove {name} from `reference_stats.extractors`."
            )
