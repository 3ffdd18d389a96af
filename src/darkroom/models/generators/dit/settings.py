"""The sections of the generator `dit`: under `train_generator` and under `sample_generator`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.models.generators.kind_settings import Kind
from darkroom.params.numbers import Positive, Share
from darkroom.params.section import Section


class Model(Section):
    """The size of the transformer."""

    width: Positive
    depth: Positive
    heads: Positive
    patch: Positive
    mlp_ratio: Annotated[float, Field(gt=0)]

    @model_validator(mode="after")
    def _divisible(self) -> "Model":
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        if self.width % 4:
            raise ValueError(f"width ({self.width}) must be a multiple of 4, for the sin-cos positions")
        return self


class Diffusion(Section):
    """The scale of the latents, the distribution of the time, and the fraction of labels dropped."""

    normalise: Literal["principal", "channel"]
    time: Literal["logit_normal", "uniform"]
    time_mean: float
    time_std: Annotated[float, Field(gt=0)]
    label_dropout: Share


class Sampling(Section):
    """How images are sampled."""

    solver: Literal["euler", "heun"]
    steps: Positive
    guidance: Annotated[float, Field(ge=0)]


class DiT(Kind):
    """The diffusion transformer.

    sampling: of grids and evaluations while training.
    """

    model: Model
    diffusion: Diffusion
    sampling: Sampling

    def unfit(self, latent_size: int) -> str | None:
        """Return why the section does not fit latents of a height and width; None: it does."""
        if latent_size % self.model.patch:
            return f"`model.patch` is {self.model.patch}, and must divide the latent's size, {latent_size}"
        return None

    @property
    def label_dropout(self) -> float:
        """The fraction of labels dropped, without which nothing guides."""
        return self.diffusion.label_dropout
