"""The sections of the generator `dit`: under `train_generator` and under `sample_generator`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.models.generators.kind_settings import Kind
from darkroom.params.numbers import Positive, Share
from darkroom.params.section import Section


class Model(Section):
    """The size of the transformer."""

    width: Positive = 384
    """Length of a token."""
    depth: Positive = 12
    """Transformer blocks."""
    heads: Positive = 6
    """Attention heads; width / heads is their size."""
    patch: Positive = 2
    """Latent pixels, height and width, of a token."""
    mlp_ratio: Annotated[float, Field(gt=0)] = 4.0
    """Width of the hidden layer of a block, in widths."""

    @model_validator(mode="after")
    def _divisible(self) -> "Model":
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        if self.width % 4:
            raise ValueError(f"width ({self.width}) must be a multiple of 4, for the sin-cos positions")
        return self


class Diffusion(Section):
    """The scale of the latents, the distribution of the time, and the fraction of labels dropped."""

    normalise: Literal["principal", "channel"] = "principal"
    """Latents get variance 1 in each channel (channel), or at most 1 in any direction of the channels (principal)."""
    time: Literal["logit_normal", "uniform"] = "logit_normal"
    """Timestep distribution in training."""
    time_mean: float = 0.0
    """logit_normal: mean of the normal variable under the logistic function."""
    time_std: Annotated[float, Field(gt=0)] = 1.0
    """logit_normal: standard deviation of the same variable."""
    label_dropout: Share = 0.1
    """Fraction of labels replaced by the null label, for guidance."""


class Sampling(Section):
    """How images are sampled."""

    solver: Literal["euler", "heun"] = "euler"
    """Solver of the ODE."""
    steps: Positive = 50
    """Steps of the solver."""
    guidance: Annotated[float, Field(ge=0)] = 1.0
    """Scale of classifier-free guidance; 1: no guidance."""


class DiT(Kind):
    """The diffusion transformer.

    sampling: of grids and evaluations while training.
    """

    model: Model = Model()
    """Size of the transformer."""
    diffusion: Diffusion = Diffusion()
    """Scale of the latents, timestep distribution and label dropout."""
    sampling: Sampling = Sampling()
    """How evaluations, and the grids while training, are sampled."""

    def unfit(self, latent_size: int) -> str | None:
        """Return why the section does not fit latents of a height and width; None: it does."""
        if latent_size % self.model.patch:
            return f"`model.patch` is {self.model.patch}, and must divide the latent's size, {latent_size}"
        return None

    @property
    def label_dropout(self) -> float:
        """The fraction of labels dropped, without which nothing guides."""
        return self.diffusion.label_dropout
