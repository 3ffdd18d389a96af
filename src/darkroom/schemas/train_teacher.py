"""The sections that `train_teacher` reads."""

from typing import Annotated, Literal

from pydantic import Field

from darkroom.params import Section
from darkroom.schemas.numbers import Positive, Share
from darkroom.schemas.run import Run
from darkroom.schemas.training import Training


class TeacherModel(Section):
    """The small classifier whose features the perceptual losses compare."""

    channels: Annotated[list[Positive], Field(min_length=1)]
    layers: Positive


class Augment(Section):
    """What the images are put through."""

    shift: Annotated[int, Field(ge=0)]
    contrast: Share


class TrainTeacher(Section):
    """The teacher and its training."""

    target: Literal["labels", "rotation"]
    model: TeacherModel
    augment: Augment
    training: Training


class Params(Section):
    """What dvc.yaml gives to `train_teacher`."""

    run: Run
    train_teacher: TrainTeacher
