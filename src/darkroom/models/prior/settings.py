"""The sections that `train_prior` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.diffusion.settings import Probability, ScheduleName
from darkroom.params.numbers import Positive, Seed, Share
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.params.training import Training


class Model(Section):
    """The size of the transformer."""

    width: Positive
    depth: Positive
    heads: Positive
    dropout: Share

    @model_validator(mode="after")
    def _divisible(self) -> "Model":
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        if self.width % 2:
            raise ValueError(f"width ({self.width}) must be even, for the sinusoids of the time")
        return self


class Diffusion(Section):
    """How embeddings come to unit variance, what is predicted, under which noise, and how often without the text."""

    normalise: Literal["scale", "standard"]
    schedule: ScheduleName
    timesteps: Annotated[int, Field(ge=2)]
    target: Literal["eps", "x0", "v"]
    loss: Literal["l1", "l2", "huber"]
    text_dropout: Probability


class PriorSampling(Section):
    """How image embeddings are sampled."""

    solver: Literal["ddpm", "ddim", "dpm", "unipc"]
    steps: Positive
    guidance: Annotated[float, Field(ge=0)]
    candidates: Positive
    batch: Positive


class Evaluate(PriorSampling):
    """What the scores are made of: validation images while training, those of `split` at its end."""

    seed: Seed
    split: Literal["val", "test"]
    images: Annotated[int, Field(ge=2)]


class TrainPrior(Section):
    """The prior, from a text to the embedding of an image, and its training."""

    model: Model
    diffusion: Diffusion
    training: Training
    evaluate: Evaluate

    @model_validator(mode="after")
    def _guided(self) -> "TrainPrior":
        if self.evaluate.guidance != 1 and not self.diffusion.text_dropout:
            raise ValueError(
                f"evaluate.guidance ({self.evaluate.guidance}) needs a prior that was trained without text too: give "
                "diffusion.text_dropout a share, or set it to 1.0"
            )
        return self

    @model_validator(mode="after")
    def _stepped(self) -> "TrainPrior":
        if self.evaluate.steps > self.diffusion.timesteps:
            raise ValueError(
                f"evaluate.steps ({self.evaluate.steps}) must be at most diffusion.timesteps "
                f"({self.diffusion.timesteps})"
            )
        return self


class Params(Section):
    """What dvc.yaml gives to `train_prior`."""

    run: Run
    train_prior: TrainPrior
