"""An objective that Darkroom does not know: x_t = cos(πt/2) x_0 + sin(πt/2) ε, of which x_0 is predicted."""

import math

import torch

from darkroom.diffusion.types import Denoised


class Arc:
    """As `darkroom.diffusion.objectives.Objective` describes it."""

    duration = 1.0
    outputs = 1

    @classmethod
    def of(cls, settings, timesteps):
        return cls()

    def times(self, uniform, normal=None):
        return torch.from_numpy(uniform.astype("float32")) * 0.98 + 0.01

    def timesteps(self, t):
        return 1000 * t

    def add_noise(self, x0, noise, t):
        alpha, sigma = self._arc(t, x0)
        return alpha * x0 + sigma * noise

    def losses(self, output, x0, noise, x, t, threshold=None):
        return {"loss": (output.float() - x0).square().flatten(1).mean(1)}

    def denoised(self, output, x, t, threshold=None):
        x0 = output.float() if threshold is None else threshold(output.float())
        alpha, sigma = self._arc(t, x)
        return Denoised(x0, math.pi / 2 * (alpha * (x - alpha * x0) / sigma - sigma * x0))

    def scored(self, found, gradient, t):
        alpha, sigma = self._arc(t, gradient)
        return Denoised(found.x0 + sigma**2 / alpha * gradient, found.velocity - math.pi / 2 * sigma / alpha * gradient)

    @staticmethod
    def _arc(t, x):
        angle = math.pi / 2 * t.reshape(-1, *(1,) * (x.ndim - 1))
        return angle.cos(), angle.sin()
