"""Gaussian diffusion: prediction targets under a noise schedule, and their losses.

x_t = α x_0 + σ ε, with α² = alpha_bar_t and σ² = 1 - alpha_bar_t (Ho et al., 2020, arXiv 2006.11239). A network
predicts ε, x_0 or v = α ε - σ x_0 (Salimans and Ho, 2022, "Progressive distillation", arXiv 2202.00512), and, where it
learns the variance, a second image of as many channels. Data are (N, C, ...), in [-1, 1] if pixels.
"""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.diffusion.bound import log_variance, variational_bound
from darkroom.diffusion.schedules import NoiseSchedule, gather
from darkroom.diffusion.settings import Diffusion, Loss, Target, Variance, VarianceRange
from darkroom.diffusion.types import LEAST_SIGNAL, Denoised, Threshold


@dataclass(frozen=True)
class Gaussian:
    """Predicts ε, x_0 or v at one of T timesteps. The loss is λ_t |f(x_t, t) - target|² + w L_vb.

    λ_t, P2's weight or Min-SNR's, is 1 by default; L_vb, the variational bound's term of a drawn timestep, trains only
    the variance, if learned. w is 0.001 in the unCLIP decoder of DALLE2-pytorch, 1 in DiT, and T / 1000 in Nichol and
    Dhariwal, 2021 (`rescaled`). With the loss `kl` L_vb trains both, and is the whole loss; `rescaled_kl` is T L_vb, an
    estimate of the whole bound.
    """

    schedule: NoiseSchedule
    target: Target = "eps"
    loss: Loss = "l2"
    variance: Variance = "fixed_small"
    variance_range: VarianceRange = "linear"
    bound_weight: float | Literal["rescaled"] = 0.001
    p2_gamma: float = 0.0
    p2_k: float = 1.0
    min_snr: float | None = None

    @classmethod
    def of(cls, settings: Diffusion, timesteps: int) -> "Gaussian":
        """Return the objective of a section of params.yaml under a noise schedule of so many timesteps."""
        keys = {field.name for field in fields(cls)} - {"schedule"}
        return cls(NoiseSchedule.named(settings.schedule, timesteps), **settings.model_dump(include=keys))

    @property
    def duration(self) -> float:
        """T, the number of timesteps."""
        return len(self.schedule)

    @property
    def outputs(self) -> int:
        """2 where the variance is learned, else 1."""
        return 1 + self.learns_variance

    @property
    def learns_variance(self) -> bool:
        """Whether the network also predicts the variance."""
        return self.variance in ("learned", "learned_range")

    def times(self, uniform: NDArray[np.floating], normal: NDArray[np.floating] | None = None) -> Tensor:
        """Return timesteps from 0 to T - 1, uniformly distributed, (N,), int64."""
        steps = torch.from_numpy(uniform.astype(np.float64)) * len(self.schedule)
        return steps.long().clamp(max=len(self.schedule) - 1)

    def timesteps(self, t: Tensor) -> Tensor:
        """Return t itself: networks embed the number of the timestep."""
        return t

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """Return x_t = sqrt(alpha_bar_t) x_0 + sqrt(1 - alpha_bar_t) ε."""
        return self.schedule.add_noise(x0, noise, t)

    def losses(
        self, output: Tensor, x0: Tensor, noise: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None
    ) -> dict[str, Tensor]:
        """Return the loss, and its terms `simple` and `bound` where the variance is learned, (N,) each, float32."""
        mean, variance = self._split(output)
        if self.loss in ("kl", "rescaled_kl"):
            bound = self._bound(x0, self._x0(mean, x, t, threshold), variance, x, t)
            return {"loss": bound * self.duration if self.loss == "rescaled_kl" else bound}
        simple = distance(mean, target_of(x0, noise, t, self.schedule, self.target), self.loss)
        if self.p2_gamma:
            simple = simple * p2_weight(t, self.schedule, self.p2_gamma, self.p2_k)
        if self.min_snr is not None:
            simple = simple * min_snr_weight(t, self.schedule, self.min_snr, self.target)
        if variance is None:
            return {"loss": simple}
        weight = self.duration / 1000 if self.bound_weight == "rescaled" else self.bound_weight
        bound = self._bound(x0, self._x0(mean, x, t, threshold).detach(), variance, x, t)
        return {"loss": simple + weight * bound, "simple": simple, "bound": bound}

    def _bound(self, x0: Tensor, predicted: Tensor, variance: Tensor | None, x: Tensor, t: Tensor) -> Tensor:
        logvar = log_variance(self.variance, variance, t, self.schedule, x.ndim)
        return variational_bound(x0, x, predicted, logvar, t, self.schedule)

    def levels(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return sqrt(alpha_bar_t) and sqrt(1 - alpha_bar_t) of timesteps (N,), float64 (N,)."""
        left = torch.from_numpy(self.schedule.alphas_cumprod)[t.cpu()]
        return left.sqrt(), (1 - left).sqrt()

    def denoised(self, output: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None) -> Denoised:
        """Return x_0, and the prediction of the variance where it is learned."""
        mean, variance = self._split(output)
        return Denoised(self._x0(mean, x, t, threshold), variance=variance)

    def scored(self, denoised: Denoised, gradient: Tensor, t: Tensor) -> Denoised:
        """Return x_0 + σ² / α g, with g added to the score; g is 0 without signal."""
        alpha, sigma = self.schedule.signal_and_noise(t, gradient.ndim)
        of_x0 = torch.where(alpha > LEAST_SIGNAL, sigma**2 / alpha.clamp(min=LEAST_SIGNAL) * gradient, 0)
        return denoised._replace(x0=denoised.x0 + of_x0)

    def _x0(self, mean: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None) -> Tensor:
        x0 = to_x0(mean.float(), x, t, self.schedule, self.target)
        return x0 if threshold is None else threshold(x0)

    def _split(self, output: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the prediction of x_0, and log σ², or its fraction."""
        if not self.learns_variance:
            return output, None
        mean, raw = output.chunk(2, dim=1)
        return mean, raw.float() if self.variance == "learned" else variance_fraction(raw.float(), self.variance_range)


# ----------------------------------------------------------------------------------------------------------------------
# Prediction targets


def target_of(x0: Tensor, noise: Tensor, steps: Tensor, schedule: NoiseSchedule, target: Target) -> Tensor:
    """Return the target of the network, of the shape of x0."""
    if target == "eps":
        return noise
    if target == "x0":
        return x0
    alpha, sigma = schedule.signal_and_noise(steps, x0.ndim)
    return alpha * noise - sigma * x0


def to_x0(prediction: Tensor, x: Tensor, steps: Tensor, schedule: NoiseSchedule, target: Target) -> Tensor:
    """Return the x_0 that follows from a prediction: (x_t - σ ε) / α, or α x_t - σ v."""
    if target == "x0":
        return prediction
    alpha, sigma = schedule.signal_and_noise(steps, x.ndim)
    return (x - sigma * prediction) / alpha if target == "eps" else alpha * x - sigma * prediction


def variance_fraction(raw: Tensor, kind: VarianceRange) -> Tensor:
    """Return f in log σ² = f log β + (1 - f) log β̃ from the second half of a network's output.

    (v + 1) / 2 (Nichol and Dhariwal, 2021, arXiv 2102.09672, equation 15), or the logistic function, within 0 and 1.
    """
    return raw.sigmoid() if kind == "sigmoid" else (raw + 1) / 2


# ----------------------------------------------------------------------------------------------------------------------
# Losses, one value an image, (N,)


def distance(prediction: Tensor, target: Tensor, kind: Loss) -> Tensor:
    """Return |p - t|, (p - t)², or the Huber loss with δ = 1: the mean over each image's elements."""
    losses = {"l1": functional.l1_loss, "l2": functional.mse_loss, "huber": functional.smooth_l1_loss}
    return losses[kind](prediction.float(), target, reduction="none").flatten(1).mean(1)


def p2_weight(steps: Tensor, schedule: NoiseSchedule, gamma: float, k: float) -> Tensor:
    """Return (k + SNR_t)^(-γ), (N,), which reduces the weight of timesteps with little noise.

    Source: Choi et al., "Perception prioritized training of diffusion models", 2022, arXiv 2204.00227, equation 8.
    """
    return gather((k + schedule.snr) ** -gamma, steps, 1)


def min_snr_weight(steps: Tensor, schedule: NoiseSchedule, cap: float, target: Target) -> Tensor:
    """Return the weight of a loss, (N,), which is min(SNR_t, γ) in terms of x_0.

    min(SNR, γ) for x_0, min(SNR, γ) / SNR for ε, min(SNR, γ) / (SNR + 1) for v: no step counts more than γ.

    Source: Hang et al., "Efficient diffusion training via Min-SNR weighting", 2023, arXiv 2303.09556, section 3.4.
    """
    least, of_target = np.minimum(schedule.snr, cap), {"x0": 1.0, "eps": schedule.snr, "v": schedule.snr + 1}
    return gather(np.asarray(least / of_target[target]), steps, 1)
