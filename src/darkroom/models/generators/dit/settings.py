"""The sections that `train_dit` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.numbers import NO_FILE, Positive, Seed, Share
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.params.training import Training


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
    """The scale of the latents, the law of the time, and the share of labels dropped."""

    normalise: Literal["principal", "channel"]
    time: Literal["logit_normal", "uniform"]
    time_mean: float
    time_std: Annotated[float, Field(gt=0)]
    label_dropout: Share


class Evaluate(Section):
    """Scores of the averaged weights while training: a look, which decides nothing."""

    every: Annotated[int, Field(ge=0)]
    images: Annotated[int, Field(ge=2)]
    batch: Positive
    seed: Seed
    solver: Literal["euler", "heun"]
    steps: Positive
    guidance: float
    extractor: str
    reference: str

    @model_validator(mode="after")
    def _judged(self) -> "Evaluate":
        if self.every and NO_FILE in (self.extractor, self.reference):
            raise ValueError(
                "every is above 0, so extractor and reference must be named: models/extractor and data/reference"
            )
        return self


class TrainDiT(Section):
    """The diffusion transformer and its training."""

    model: DiTModel
    diffusion: Diffusion
    training: Training
    evaluate: Evaluate

    @model_validator(mode="after")
    def _guided(self) -> "TrainDiT":
        if self.evaluate.every and self.evaluate.guidance != 1 and not self.diffusion.label_dropout:
            raise ValueError(
                f"evaluate.guidance ({self.evaluate.guidance}) needs a model that was trained without labels too: give "
                "diffusion.label_dropout a share, or set it to 1.0"
            )
        return self


class Params(Section):
    """What dvc.yaml gives to `train_dit`."""

    run: Run
    train_dit: TrainDiT
