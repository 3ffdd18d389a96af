"""Flow matching and stochastic interpolants: paths from data to noise, and the prediction targets on them.

Time runs as in Stable Diffusion 3 and in diffusers' schedulers: t = 0 is data, t = 1 is noise. Sources: Lipman et al.,
2022, arXiv 2210.02747; Liu et al., 2022, arXiv 2209.03003; Ma et al., "SiT", 2024, arXiv 2401.08740.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.diffusion.settings import Diffusion, FlowTarget, FlowWeight, PathName
from darkroom.diffusion.types import LEAST_SIGNAL, Denoised, Threshold

_TIMESTEPS = 1000  # of pure noise, as networks embed it
_MARGIN = 1e-3  # of the ends of time, where a prediction of ε or of the score has no information on the data
_NEAR = 0.05  # of the ends of time, where the weight `velocity_clamped` is constant (Li and He, 2025, arXiv 2511.13720)

_LEAST, _MOST = 0.1, 20.0  # β of the path vp at data and at noise


# ---------------------------------------------------------------------------------------------------------------------
# Paths from data to noise: x_t = α(t) x_0 + σ(t) ε (Albergo et al., "Stochastic interpolants", 2023, arXiv 2303.08797)


class Levels(NamedTuple):
    """α, σ and their derivatives by t, each of the shape of t."""

    alpha: Tensor
    sigma: Tensor
    alpha_rate: Tensor
    sigma_rate: Tensor


def linear(t: Tensor) -> Levels:
    """α = 1 - t, σ = t."""
    one = torch.ones_like(t)
    return Levels(1 - t, t, -one, one)


def gvp(t: Tensor) -> Levels:
    """α = cos(πt/2), σ = sin(πt/2): the variance of unit data stays 1."""
    angle = math.pi / 2 * t
    alpha, sigma = angle.cos(), angle.sin()
    return Levels(alpha, sigma, -math.pi / 2 * sigma, math.pi / 2 * alpha)


def vp(t: Tensor) -> Levels:
    """α = exp(-(b - a) t²/4 - a t/2), σ = √(1 - α²), a = 0.1, b = 20: DDPM's linear schedule in continuous time.

    Song et al., 2020, "Score-based generative modeling through SDEs", arXiv 2011.13456, equation 33.
    """
    log_alpha = -0.25 * (_MOST - _LEAST) * t**2 - 0.5 * _LEAST * t
    alpha, sigma = log_alpha.exp(), (-torch.expm1(2 * log_alpha)).sqrt()
    alpha_rate = alpha * (-0.5 * (_MOST - _LEAST) * t - 0.5 * _LEAST)
    return Levels(alpha, sigma, alpha_rate, -alpha * alpha_rate / sigma)


PATHS: dict[PathName, Callable[[Tensor], Levels]] = {"linear": linear, "gvp": gvp, "vp": vp}


# ---------------------------------------------------------------------------------------------------------------------
# The objective


@dataclass(frozen=True)
class Flow:
    """Predicts the velocity dx_t/dt, ε, x_0 or the score ∇ log p_t(x_t) = -ε / σ along a path.

    logit_normal: mean and standard deviation of the normal variable under the logistic function; None: t is uniform.
    shift: s of t -> s t / (1 + (s - 1) t), in training and in sampling (Esser et al., 2024, arXiv 2403.03206, section
        5.3.2; for latents of many numbers: Zheng et al., "RAE", 2025, arXiv 2510.11690).
    weight: of a prediction's squared error, see `_weight`.
    units: of the times that networks embed: `thousand` from 0 at data to 1000, or `sit` from 1 at data to 0 (SiT).
    """

    logit_normal: tuple[float, float] | None = None
    path: PathName = "linear"
    target: FlowTarget = "velocity"
    shift: float = 1.0
    weight: FlowWeight = "none"
    units: Literal["thousand", "sit"] = "thousand"

    duration = 1.0
    outputs = 1

    @classmethod
    def of(cls, settings: Diffusion, timesteps: int) -> "Flow":
        """Return the objective of a section of params.yaml; time is continuous, so there are no `timesteps`."""
        times = (settings.time_mean, settings.time_std) if settings.time == "logit_normal" else None
        return cls(
            times, settings.path, settings.flow_target, settings.time_shift, settings.flow_weight, settings.time_units
        )

    @property
    def ends(self) -> tuple[float, float]:
        """The range of training times, without those where the prediction or the loss is unbounded."""
        first = 1e-5 if self.path == "vp" else 0.0
        if self.path != "vp" and self.target in ("eps", "score"):
            return _MARGIN, 1 - _MARGIN
        return first, 1.0

    def times(self, uniform: NDArray[np.floating], normal: NDArray[np.floating] | None = None) -> Tensor:
        """Return times in [0, 1), (N,), float32: uniform, or t = 1 / (1 + exp(-(mean + std n))) for normal n.

        Source: Esser et al., "Scaling rectified flow transformers", 2024, arXiv 2403.03206, section 3.1.
        """
        if self.logit_normal is None:
            t = torch.from_numpy(uniform.astype(np.float32))
        else:
            if normal is None:
                normal = torch.special.ndtri(torch.from_numpy(uniform.astype(np.float64))).numpy()
            mean, std = self.logit_normal
            t = torch.from_numpy((1 / (1 + np.exp(-(mean + std * normal.astype(np.float64))))).astype(np.float32))
        low, high = self.ends
        t = self.shifted(t)
        return t if (low, high) == (0.0, 1.0) else low + (high - low) * t

    def shifted(self, t: Tensor) -> Tensor:
        """Return s t / (1 + (s - 1) t), of the shape of t."""
        return t if self.shift == 1 else self.shift * t / (1 + (self.shift - 1) * t)

    def timesteps(self, t: Tensor) -> Tensor:
        """Return 1000 t, (N,), or 1 - t: the time of SiT, as its networks embed it."""
        return _TIMESTEPS * t if self.units == "thousand" else 1 - t

    def levels(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return α and σ of times (N,), float64 (N,)."""
        levels = PATHS[self.path](t.cpu().double())
        return levels.alpha, levels.sigma

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """Return x_t = α x_0 + σ ε, (N, C, ...); on the straight path (1 - t) x_0 + t ε."""
        levels = self._levels(t, x0)
        return levels.alpha * x0 + levels.sigma * noise

    def losses(
        self, output: Tensor, x0: Tensor, noise: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None
    ) -> dict[str, Tensor]:
        """Return the squared error of the prediction, the mean over each image's elements, (N,), float32.

        For the velocity: || v(x_t, t) - (α' x_0 + σ' ε) ||². A score is multiplied by σ, like ε (SiT, section 2.2).
        """
        levels, output = self._levels(t, x0), output.float()
        target = {
            "velocity": lambda: levels.alpha_rate * x0 + levels.sigma_rate * noise,
            "x0": lambda: x0,
            "eps": lambda: noise,
            "score": lambda: -noise,
        }[self.target]()
        prediction = levels.sigma * output if self.target == "score" else output
        loss = (prediction - target).square().mean(dim=tuple(range(1, x0.ndim)))
        if self.weight != "none":
            loss = loss * self._weight(t.clamp(_NEAR, 1 - _NEAR) if self.weight == "velocity_clamped" else t)
        return {"loss": loss}

    def denoised(self, output: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None) -> Denoised:
        """Return the velocity v and x_0, on the straight path x_t - t v; with a threshold the v that leads to its x_0.

        From α x_0 + σ ε = x_t and α' x_0 + σ' ε = v.
        """
        prediction, levels = output.float(), self._levels(t, x)
        alpha, sigma, alpha_rate, sigma_rate = levels
        if self.target == "velocity":
            x0 = (sigma_rate * x - sigma * prediction) / (sigma_rate * alpha - sigma * alpha_rate)
            if threshold is None:
                return Denoised(x0, prediction)
        elif self.target == "x0":
            x0 = prediction
        else:
            noise = prediction if self.target == "eps" else -sigma * prediction
            x0 = (x - sigma * noise) / alpha
            if threshold is None:
                return Denoised(x0, alpha_rate * x0 + sigma_rate * noise)
        x0 = x0 if threshold is None else threshold(x0)
        return Denoised(x0, alpha_rate * x0 + sigma_rate * (x - alpha * x0) / sigma)

    def scored(self, denoised: Denoised, gradient: Tensor, t: Tensor) -> Denoised:
        """Return x_0 + σ² / α g, and v + (α' σ² / α - σ σ') g, with g added to the score; g is 0 without signal."""
        alpha, sigma, alpha_rate, sigma_rate = self._levels(t, gradient)
        gradient = torch.where(alpha > LEAST_SIGNAL, gradient, 0)
        of_x0 = sigma**2 / alpha.clamp(min=LEAST_SIGNAL) * gradient
        assert denoised.velocity is not None  # flows have one
        return Denoised(denoised.x0 + of_x0, denoised.velocity + alpha_rate * of_x0 - sigma * sigma_rate * gradient)

    def _levels(self, t: Tensor, x: Tensor) -> Levels:
        return PATHS[self.path](t.reshape(-1, *(1,) * (x.ndim - 1)))

    def _weight(self, t: Tensor) -> Tensor:
        """Return the weight, (N,), that turns the squared error of the prediction into that of the velocity.

        For ε and the score it is λ², λ = σ' - α' σ / α, and λ / σ for `likelihood`: g² / 2 of the SDE's g times the
        squared error of the score (Song et al., 2021, arXiv 2101.09258).
        """
        alpha, sigma, alpha_rate, sigma_rate = PATHS[self.path](t)
        if self.target == "velocity":
            return torch.ones_like(alpha)
        if self.target == "x0":  # v = α' x_0 + σ' (x - α x_0) / σ
            return (alpha_rate - sigma_rate * alpha / sigma).square()
        rate = sigma_rate - alpha_rate * sigma / alpha  # v = α' (x - σ ε) / α + σ' ε
        return rate / sigma if self.weight == "likelihood" else rate.square()
