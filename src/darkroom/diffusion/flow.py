"""Flow matching on the straight path (Lipman et al., 2022, arXiv 2210.02747; Liu et al., 2022, arXiv 2209.03003).

Time runs as in Stable Diffusion 3 and in diffusers' schedulers: t = 0 is data, t = 1 is noise.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.diffusion.denoiser import Denoised, Threshold
from darkroom.diffusion.settings import Diffusion

_TIMESTEPS = 1000  # of pure noise, as networks embed it


@dataclass(frozen=True)
class Flow:
    """Predicts the velocity dx_t/dt; t is logit-normal with this mean and standard deviation, or uniform (None)."""

    logit_normal: tuple[float, float] | None = None

    duration = 1.0
    outputs = 1

    @classmethod
    def of(cls, settings: Diffusion, timesteps: int) -> "Flow":
        """Return the objective of a section of params.yaml; time is continuous, so there are no `timesteps`."""
        return cls((settings.time_mean, settings.time_std) if settings.time == "logit_normal" else None)

    def times(self, uniform: NDArray[np.floating], normal: NDArray[np.floating] | None = None) -> Tensor:
        """Return times in [0, 1), (N,), float32: uniform, or t = 1 / (1 + exp(-(mean + std n))) for normal n.

        Source: Esser et al., "Scaling rectified flow transformers", 2024, arXiv 2403.03206, section 3.1.
        """
        if self.logit_normal is None:
            return torch.from_numpy(uniform.astype(np.float32))
        if normal is None:
            normal = torch.special.ndtri(torch.from_numpy(uniform.astype(np.float64))).numpy()
        mean, std = self.logit_normal
        return torch.from_numpy((1 / (1 + np.exp(-(mean + std * normal.astype(np.float64))))).astype(np.float32))

    def timesteps(self, t: Tensor) -> Tensor:
        """Return 1000 t, (N,)."""
        return _TIMESTEPS * t

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """Return x_t = (1 - t) x_0 + t ε, (N, C, ...)."""
        t = _beside(t, x0)
        return (1 - t) * x0 + t * noise

    def losses(
        self, output: Tensor, x0: Tensor, noise: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None
    ) -> dict[str, Tensor]:
        """Return || v(x_t, t) - (ε - x_0) ||², the mean over each image's elements, (N,), float32."""
        return {"loss": (output.float() - (noise - x0)).square().mean(dim=tuple(range(1, x0.ndim)))}

    def denoised(self, output: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None) -> Denoised:
        """Return the velocity v, and x_0 = x_t - t v; with a threshold on x_0 the velocity that leads there."""
        velocity, t = output.float(), _beside(t, x)
        x0 = x - t * velocity
        if threshold is None:
            return Denoised(x0, velocity)
        x0 = threshold(x0)
        return Denoised(x0, (x - x0) / t)


def _beside(t: Tensor, x: Tensor) -> Tensor:
    """Return times (N,) with as many dimensions as x."""
    return t.reshape(-1, *(1,) * (x.ndim - 1))
