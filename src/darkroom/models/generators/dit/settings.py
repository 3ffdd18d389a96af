"""The sections of the generator `dit`: under `train_generator` and under `sample_generator`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.diffusion.settings import Diffusion, ObjectiveName, Sampling, Solver, Target, Timesteps, require_fit
from darkroom.models.generators.kind_settings import Kind
from darkroom.params.numbers import Fraction, Positive
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


class DiTDiffusion(Diffusion):
    """How latents diffuse."""

    objective: ObjectiveName = "flow"
    """flow (flow matching) or gaussian (Gaussian diffusion in timesteps)."""
    target: Target = "eps"
    """gaussian: what is predicted: eps (the noise), x0 (the data) or v (of both)."""
    timesteps: Timesteps = 1000
    """gaussian: length of the noise schedule."""
    normalise: Literal["principal", "channel"] = "principal"
    """Latents get variance 1 in each channel (channel), or at most 1 in any direction of the channels (principal)."""
    label_dropout: Fraction = 0.1
    """Fraction of labels replaced by the null label, for guidance."""


class DiTSampling(Sampling):
    """How images are sampled."""

    solver: Solver = "euler"
    """euler or heun for flow; ddpm, ddim, dpm (DPM-Solver++) or unipc for gaussian."""
    steps: Positive = 50
    """Steps of the solver."""


class DiT(Kind):
    """The diffusion transformer.

    sampling: of grids and evaluations while training.
    """

    model: Model = Model()
    """Size of the transformer."""
    diffusion: DiTDiffusion = DiTDiffusion()
    """Objective, scale of the latents, and label dropout."""
    sampling: DiTSampling = DiTSampling()
    """How evaluations, and the grids while training, are sampled."""

    @model_validator(mode="after")
    def _sampled(self) -> "DiT":
        require_fit("sampling", self.sampling, self.diffusion, self.diffusion.timesteps)
        return self

    def unfit(self, latent_size: int) -> str | None:
        """Return why the section does not fit latents of a height and width; None: it does."""
        if latent_size % self.model.patch:
            return f"`model.patch` is {self.model.patch}, and must divide the latent's size, {latent_size}"
        return None

    @property
    def label_dropout(self) -> float:
        """The fraction of labels dropped, without which nothing guides."""
        return self.diffusion.label_dropout
