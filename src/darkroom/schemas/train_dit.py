"""The sections that `train_dit` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params import Section
from darkroom.schemas.parts import Parts
from darkroom.schemas.run import Run
from darkroom.schemas.training import Positive, Share, Training


class DiTModel(Section):
    """The size of the transformer."""

    width: Positive
    depth: Positive
    heads: Positive
    patch: Positive
    mlp_ratio: Annotated[float, Field(gt=0)]

    @model_validator(mode="after")
    def _divisible(self) -> "DiTModel":
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        if self.width % 4:
            raise ValueError(f"width ({self.width}) must be a multiple of 4, for the sin-cos positions")
        return self


class Diffusion(Section):
    """The law of the time, and the share of labels dropped."""

    time: Literal["logit_normal", "uniform"]
    time_mean: float
    time_std: Annotated[float, Field(gt=0)]
    label_dropout: Share


class TrainDiT(Section):
    """The diffusion transformer and its training."""

    model: DiTModel
    diffusion: Diffusion
    training: Training


class Params(Section):
    """What dvc.yaml gives to `train_dit`."""

    run: Run
    parts: Parts
    train_dit: TrainDiT
