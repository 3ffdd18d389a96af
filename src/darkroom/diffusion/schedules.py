"""Noise schedules of Gaussian diffusion: the fraction of an image left at each of T steps. All tables are float64.

q(x_t | x_0) = N(sqrt(ᾱ_t) x_0, (1 - ᾱ_t) I), ᾱ_t = Π α_s, α_s = 1 - β_s (Ho et al., 2020, "Denoising diffusion
probabilistic models", arXiv 2006.11239, equation 4). Steps count from 0, the least noise, to T - 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from darkroom.device import to_device

Table = NDArray[np.float64]
Name = Literal["cosine", "linear", "quadratic", "jsd", "sigmoid"]

_LARGEST = 0.999  # limit of β: β = 1 would leave nothing of the image to predict from


def _ends(steps: int) -> tuple[float, float]:
    """Return the smallest and largest β of a linear schedule: 1e-4 and 0.02 at 1,000 steps, scaled to others."""
    return 1e-4 * 1000 / steps, 0.02 * 1000 / steps


def _cosine(steps: int) -> Table:
    """ᾱ_t = f(t) / f(0), f(t) = cos²((t/T + s) / (1 + s) · π/2), s = 0.008.

    Source: Nichol and Dhariwal, "Improved denoising diffusion", 2021, arXiv 2102.09672, equation 17.
    """
    at = np.arange(steps + 1, dtype=np.float64) / steps
    left = np.cos((at + 0.008) / 1.008 * np.pi / 2) ** 2
    return 1 - left[1:] / left[:-1]


def _linear(steps: int) -> Table:
    """β from 1e-4 to 0.02 in equal steps (Ho et al., 2020)."""
    return np.linspace(*_ends(steps), steps)


def _quadratic(steps: int) -> Table:
    """The square roots of β in equal steps."""
    low, high = _ends(steps)
    return np.linspace(low**0.5, high**0.5, steps) ** 2


def _jsd(steps: int) -> Table:
    """β_t = 1 / (T - t): each step erases 1 / T of the signal of x0 (Sohl-Dickstein et al., 1503.03585)."""
    return 1 / np.linspace(steps, 1, steps)


def _sigmoid(steps: int) -> Table:
    """β along a logistic curve from -6 to 6."""
    low, high = _ends(steps)
    return low + (high - low) / (1 + np.exp(-np.linspace(-6, 6, steps)))


_BETAS: dict[Name, Callable[[int], Table]] = {
    "cosine": _cosine,
    "linear": _linear,
    "quadratic": _quadratic,
    "jsd": _jsd,
    "sigmoid": _sigmoid,
}


@dataclass(frozen=True, eq=False)
class NoiseSchedule:
    """A schedule and the tables derived from it, float64 (T,).

    betas: β_t, the fraction of variance that step t replaces by noise.
    """

    betas: Table

    @classmethod
    def named(cls, name: Name, steps: int = 1000) -> "NoiseSchedule":
        """Return the schedule with this name and number of steps."""
        return cls(np.minimum(_BETAS[name](steps), _LARGEST))

    def __len__(self) -> int:
        return len(self.betas)

    @cached_property
    def alphas_cumprod(self) -> Table:
        """ᾱ_t, the fraction of the variance that comes from x0."""
        return np.asarray(np.cumprod(1 - self.betas))

    @cached_property
    def alphas_cumprod_before(self) -> Table:
        """ᾱ_{t-1}, 1 before the first step."""
        return np.concatenate([np.ones(1), self.alphas_cumprod[:-1]])

    @cached_property
    def posterior_variance(self) -> Table:
        """Variance of q(x_{t-1} | x_t, x_0), β_t (1 - ᾱ_{t-1}) / (1 - ᾱ_t); 0 at the first step."""
        return self.betas * ((1 - self.alphas_cumprod_before) / (1 - self.alphas_cumprod))

    @cached_property
    def snr(self) -> Table:
        """Signal to noise, ᾱ_t / (1 - ᾱ_t)."""
        return self.alphas_cumprod / (1 - self.alphas_cumprod)

    @cached_property
    def log_posterior_variance(self) -> Table:
        """The logarithm of the posterior variance; the first step, where that is 0, has the value of the second."""
        later = self.posterior_variance[1:]
        return np.log(np.concatenate([later[:1] if len(later) else self.betas[:1], later]))

    def respaced(self, timesteps: NDArray[np.int64]) -> "NoiseSchedule":
        """Return the schedule of a subset of the timesteps, in any order: β from ᾱ of one to ᾱ of the next.

        Source: Nichol and Dhariwal, 2021, arXiv 2102.09672, section 4.
        """
        left = self.alphas_cumprod[np.sort(timesteps)]
        return NoiseSchedule(1 - left / np.concatenate([np.ones(1), left[:-1]]))

    def posterior_mean(self, x0: Tensor, x: Tensor, steps: Tensor) -> Tensor:
        """Return the mean of q(x_{t-1} | x_t, x_0), of the shape of x (Ho et al., 2020, equation 7)."""
        before, after = self.alphas_cumprod_before, self.alphas_cumprod
        of_x0 = gather(self.betas * np.sqrt(before) / (1 - after), steps, x.ndim)
        of_x = gather((1 - before) * np.sqrt(1 - self.betas) / (1 - after), steps, x.ndim)
        return of_x0 * x0 + of_x * x

    def add_noise(self, x0: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """Return x_t = sqrt(ᾱ_t) x_0 + sqrt(1 - ᾱ_t) ε; x0 and noise (N, ...), steps (N,) int64."""
        alpha, sigma = self.signal_and_noise(steps, x0.ndim)
        return alpha * x0 + sigma * noise

    def signal_and_noise(self, steps: Tensor, ndim: int = 4) -> tuple[Tensor, Tensor]:
        """Return sqrt(ᾱ_t) and sqrt(1 - ᾱ_t) of each step, float32, with `ndim` dimensions to multiply with."""
        return (
            gather(np.sqrt(self.alphas_cumprod), steps, ndim),
            gather(np.sqrt(1 - self.alphas_cumprod), steps, ndim),
        )


def gather(table: Table, steps: Tensor, ndim: int = 4) -> Tensor:
    """Return a table's values at some steps, (N,) int64, as float32 (N, 1, ..., 1) on their device."""
    values = to_device(table.astype(np.float32), steps.device)[steps]
    return values.reshape(-1, *(1,) * (ndim - 1))
