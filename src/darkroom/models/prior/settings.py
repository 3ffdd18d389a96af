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

    width: Positive = 64
    """Length of a token."""
    depth: Positive = 2
    """Layers of the transformer."""
    heads: Positive = 2
    """Attention heads."""
    dropout: Share = 0.0
    """Fraction of each layer's output dropped in training."""

    @model_validator(mode="after")
    def _divisible(self) -> "Model":
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        if self.width % 2:
            raise ValueError(f"width ({self.width}) must be even, for the sinusoids of the time")
        return self


class Diffusion(Section):
    """How embeddings come to unit variance, what is predicted, under which noise, and how often without the text."""

    normalise: Literal["scale", "standard"] = "standard"
    """How embeddings get unit variance: scale (one factor) or standard (each dimension by itself)."""
    schedule: ScheduleName = "cosine"
    """Noise schedule."""
    timesteps: Annotated[int, Field(ge=2)] = 1000
    """Timesteps of the diffusion."""
    target: Literal["eps", "x0", "v"] = "x0"
    """What the prior predicts: x0 (the embedding), eps (the noise) or v (of both)."""
    loss: Literal["l1", "l2", "huber"] = "l2"
    """Loss of the prediction."""
    text_dropout: Probability = 0.2
    """Fraction of texts replaced by a learned null text, for guidance."""


class PriorSampling(Section):
    """How image embeddings are sampled."""

    solver: Literal["ddpm", "ddim", "dpm", "unipc"] = "ddim"
    """Sampler; dpm is DPM-Solver++."""
    steps: Positive = 20
    """Evaluations of the prior."""
    guidance: Annotated[float, Field(ge=0)] = 1.0
    """Scale of classifier-free guidance; 1: no guidance."""
    candidates: Positive = 2
    """Embeddings sampled for each text, of which the one nearest to the text is kept."""
    batch: Positive = 64
    """Embeddings in a forward pass."""


class Evaluate(PriorSampling):
    """What the scores are made of: validation images while training, those of `split` at its end."""

    seed: Seed = 2
    """Seed of the noise."""
    split: Literal["val", "test"] = "test"
    """Split that is evaluated when the training ends."""
    images: Annotated[int, Field(ge=2)] = 200
    """Captions whose embeddings are sampled."""


class TrainPrior(Section):
    """The prior, from a text to the embedding of an image, and its training."""

    model: Model = Model()
    """Size of the transformer."""
    diffusion: Diffusion = Diffusion()
    """Objective and noise schedule."""
    training: Training
    """The keys of `training` that have another value here."""
    evaluate: Evaluate = Evaluate()
    """Scores of validation images while training, and of `split` when it ends; a change trains anew."""

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
