"""The sections that `train_teacher` reads."""

from typing import Annotated, Literal

from pydantic import Field

from darkroom.models.tokenizers.loss_settings import TEACHER, Network
from darkroom.params.run import Run
from darkroom.params.section import Fraction, Positive, Rate, Section, Seed, Warmup, Weight
from darkroom.params.training import Schedule, Training


class TeacherModel(Section):
    """The small classifier whose features the perceptual losses compare."""

    channels: Annotated[list[Positive], Field(min_length=1)] = [16, 32, 64, 64]
    """Width of each level; between two levels the resolution is halved."""
    layers: Positive = 1
    """Convolutions in each level."""


class Augment(Section):
    """What the images are put through."""

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

    target: Literal["labels", "rotation"] = "labels"
    """labels, or rotation: classify quarter turns, for data without labels or of one class."""
    model: TeacherModel = TeacherModel()
    """Size of the classifier."""
    augment: Augment = Augment()
    """Augmentation of the images in training."""
    training: TeacherTraining = TeacherTraining()
    """The keys of `training` that have another value here."""


class PerceptualNetwork(Section):
    """Of a perceptual loss, the network."""

    network: Network


class KindLosses(Section):
    """Of a kind of tokenizer, its perceptual loss."""

    perceptual: PerceptualNetwork


class TokenizerLosses(Section):
    """Of `train_tokenizer`, what says whether it asks for this teacher: the kind, and the kinds' perceptual losses."""

    kind: str
    teacher: str
    kl: KindLosses
    vqgan: KindLosses


class Params(Section):
    """What dvc.yaml gives to `train_teacher`."""

    run: Run
    train_teacher: TrainTeacher
    train_tokenizer: TokenizerLosses

    @property
    def idle(self) -> str | None:
        """Why nothing is trained; None: the tokenizer's loss asks for this teacher."""
        tokenizer = self.train_tokenizer
        losses: KindLosses | None = getattr(tokenizer, tokenizer.kind, None)
        if losses is None:
            return f"the tokenizer `{tokenizer.kind}` has no perceptual loss"
        if losses.perceptual.network != "teacher":
            return f"`train_tokenizer.{tokenizer.kind}.perceptual.network` is {losses.perceptual.network}"
        if tokenizer.teacher != TEACHER:
            return f"`train_tokenizer.teacher` is {tokenizer.teacher}"
        return None
