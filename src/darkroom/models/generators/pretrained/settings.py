"""The sections of the generator `pretrained`: under `train_generator` and under `sample_generator`."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from darkroom.diffusion.settings import ScheduleName, Solver, Spacing, Steps
from darkroom.models.generators.dit.settings import LATENT_SCALE, DiTDiffusion, DiTSampling
from darkroom.models.generators.kind_settings import Kind
from darkroom.params.section import NO_FILE, Positive, Sha256


class Pretrained(Kind):
    """A published DiT, from the paper's `.pt` files or diffusers, used without training."""

    formats = ("diffusers", "pt", "safetensors")

    name: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = "facebook/DiT-XL-2-256"
    """Name on the Hub of a pipeline of diffusers; null: `folder` or `url`."""
    revision: str | None = None
    """Commit, branch or tag on the Hub; null: the newest."""
    folder: str = NO_FILE
    """A .pt file, a folder with one, or a folder of diffusers; data/none: by name or URL."""
    url: str | None = None
    """An fsspec URL of a .pt or .safetensors file; null: none."""
    sha256: Sha256 | None = None
    """SHA-256 of the file behind the URL."""
    heads: Positive | None = None
    """Attention heads, which a .pt lacks; null: from the file, or the paper's size of this width."""
    objective: Literal["gaussian", "flow"] = "gaussian"
    """gaussian: a DiT, Gaussian diffusion; flow: a SiT, the velocity on the straight path (Ma et al., 2024)."""
    schedule: ScheduleName = "linear"
    """gaussian: the noise schedule that it was trained with."""
    latent_scale: Annotated[float, Field(gt=0)] = LATENT_SCALE
    """The factor of latents that it was trained with."""
    variance: Literal["learned_range", "fixed_small", "fixed_large"] = "learned_range"
    """gaussian: variance of a step that it was trained with; learned_range has a second output."""

    @property
    def diffusion(self) -> DiTDiffusion:
        """The meaning of its output: the noise of Gaussian diffusion in 1,000 timesteps, or a SiT's velocity."""
        if self.objective == "flow":
            return DiTDiffusion(
                objective="flow", time_units="sit", time="uniform", normalise="fixed", latent_scale=self.latent_scale
            )
        return DiTDiffusion(
            objective="gaussian",
            target="eps",
            timesteps=1000,
            schedule=self.schedule,
            variance=self.variance,
            normalise="fixed",
            latent_scale=self.latent_scale,
        )

    @property
    def label_dropout(self) -> float:
        """The fraction of labels that were dropped in its training."""
        return self.diffusion.label_dropout

    READ_WITH = {"schedule": ("objective", "gaussian"), "variance": ("objective", "gaussian"), "revision": ("name",)}

    def _misfits(self) -> Iterator[str]:
        if sum((self.name is not None, self.url is not None, self.folder != NO_FILE)) != 1:
            yield f"set one of name, folder and url; the others are null, or {NO_FILE} for folder"
        if self.objective == "flow" and self.name is not None:
            yield "objective is flow, but SiTs are .pt files: set name to null, and folder or url to the file"
        if self.training:
            yield "nothing is trained, so `training` must be {}"


class PretrainedSampling(DiTSampling):
    """How images are sampled; by default as the paper's published scores."""

    solver: Solver = "ddpm"
    """ddpm, ddim or dpm (DPM-Solver++); for a SiT euler_maruyama (its published scores), euler, heun or dpm."""
    steps: Steps = 250
    """Steps of the solver."""
    spacing: Spacing = "linspace"
    """Timesteps from the last one on (trailing), from the first (leading), or both (linspace: DiT's); not for a SiT."""
    guidance: Annotated[float, Field(ge=0)] = 1.5
    """Scale of guidance, away from the network without its condition; 1: none."""
    guidance_channels: Positive | None = 3
    """Channels that are guided, the first ones: the paper's scores guide 3 of 4; null: all."""
