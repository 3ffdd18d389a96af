"""Gaussian diffusion: what a network predicts, and the losses of that. Images are (N, C, H, W), in [-1, 1] if pixels.

x_t = α x_0 + σ ε, with α² = ᾱ_t and σ² = 1 - ᾱ_t. A network predicts ε, x_0 or v = α ε - σ x_0 (Salimans and Ho, 2022,
"Progressive distillation", arXiv 2202.00512), and, where it learns the variance, a second image of as many channels.
"""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from darkroom.diffusion.noise import NoiseSchedule, taken

Target = Literal["eps", "x0", "v"]
Distance = Literal["l1", "l2", "huber"]
VarianceRange = Literal["linear", "sigmoid"]

# ----------------------------------------------------------------------------------------------------------------------
# What is predicted


def target_of(x0: Tensor, noise: Tensor, steps: Tensor, schedule: NoiseSchedule, target: Target) -> Tensor:
    """Return what the network should say, of the shape of x0."""
    if target == "eps":
        return noise
    if target == "x0":
        return x0
    alpha, sigma = schedule.signal_and_noise(steps, x0.ndim)
    return alpha * noise - sigma * x0


def to_x0(prediction: Tensor, x: Tensor, steps: Tensor, schedule: NoiseSchedule, target: Target) -> Tensor:
    """Return the x_0 that a prediction stands for: (x_t - σ ε) / α, or α x_t - σ v."""
    if target == "x0":
        return prediction
    alpha, sigma = schedule.signal_and_noise(steps, x.ndim)
    return (x - sigma * prediction) / alpha if target == "eps" else alpha * x - sigma * prediction


def share_of(raw: Tensor, how: VarianceRange) -> Tensor:
    """Return the share f in log σ² = f log β + (1 - f) log β̃ that a network's second half says.

    (v + 1) / 2 as Nichol and Dhariwal, 2021, arXiv 2102.09672, equation 15; or the logistic function, within 0 and 1.
    """
    return raw.sigmoid() if how == "sigmoid" else (raw + 1) / 2


# ----------------------------------------------------------------------------------------------------------------------
# Losses, one value an image, (N,)


def distance(prediction: Tensor, target: Tensor, kind: Distance) -> Tensor:
    """Return |p - t|, (p - t)², or the Huber loss with δ = 1: the mean over each image's elements."""
    losses = {"l1": functional.l1_loss, "l2": functional.mse_loss, "huber": functional.smooth_l1_loss}
    return losses[kind](prediction.float(), target, reduction="none").flatten(1).mean(1)


def p2_weight(steps: Tensor, schedule: NoiseSchedule, gamma: float, k: float) -> Tensor:
    """Return (k + SNR_t)^(-γ), (N,): less weight where little is hidden.

    Source: Choi et al., "Perception prioritized training of diffusion models", 2022, arXiv 2204.00227, equation 8.
    """
    return taken((k + schedule.snr) ** -gamma, steps, 1)


def min_snr_weight(steps: Tensor, schedule: NoiseSchedule, cap: float, target: Target) -> Tensor:
    """Return the weight of a loss that is min(SNR_t, γ) where x_0 is compared, (N,).

    min(SNR, γ) for x_0, min(SNR, γ) / SNR for ε, min(SNR, γ) / (SNR + 1) for v: what x_0 loses at little noise, its
    details, counts as much as what ε and v have, and no step more than γ.

    Source: Hang et al., "Efficient diffusion training via Min-SNR weighting", 2023, arXiv 2303.09556, section 3.4.
    """
    least, of_target = np.minimum(schedule.snr, cap), {"x0": 1.0, "eps": schedule.snr, "v": schedule.snr + 1}
    return taken(np.asarray(least / of_target[target]), steps, 1)


def variational_bound(
    x0: Tensor, x: Tensor, predicted_x0: Tensor, share: Tensor, steps: Tensor, schedule: NoiseSchedule
) -> Tensor:
    """Return one step's term of the variational bound in bits an element, the mean of each image, (N,).

    KL(q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t)) for t > 0; for t = 0 the negative log-likelihood of x_0 under p with
    256 grey levels. The predicted x_0 is detached, so that the bound teaches the variance alone (Nichol and Dhariwal,
    2021, arXiv 2102.09672, section 3.1).

    Args:
        x0: the image, in [-1, 1].
        x: x_t.
        predicted_x0: what the network takes for x_0.
        share: of the log variance, from `share_of`.
        steps: t, (N,) int64.
        schedule: of the noise.
    """
    before, after = schedule.alphas_cumprod_before, schedule.alphas_cumprod
    # The mean of the posterior: c_0 x_0 + c_t x_t (Ho et al., 2020, equation 7).
    c0 = taken(np.sqrt(before) * schedule.betas / (1 - after), steps, x.ndim)
    ct = taken(np.sqrt(1 - schedule.betas) * (1 - before) / (1 - after), steps, x.ndim)
    truth, guess = c0 * x0 + ct * x, c0 * predicted_x0.detach() + ct * x
    # At t = 0 the posterior has no variance; that of the next step stands in.
    smallest = np.log(np.append(schedule.posterior_variance[1:2], schedule.posterior_variance[1:]))
    low, high = taken(smallest, steps, x.ndim), taken(np.log(schedule.betas), steps, x.ndim)
    logvar = share * high + (1 - share) * low
    divergence = 0.5 * (logvar - low - 1 + (low - logvar).exp() + (truth - guess) ** 2 * (-logvar).exp())
    likelihood = _log_likelihood(x0, guess, 0.5 * logvar)
    first = (steps == 0).reshape(-1, *(1,) * (x.ndim - 1))
    return torch.where(first, -likelihood, divergence).flatten(1).mean(1) / math.log(2)


def _log_likelihood(x: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return log of the mass that N(mean, std²) puts on the grey level of x, of 256 from -1 to 1; the ends are open."""
    away, scale = x - mean, (-log_std).exp()
    upper, lower = _cdf((away + 1 / 255) * scale), _cdf((away - 1 / 255) * scale)
    upper = torch.where(x > 0.999, torch.ones_like(upper), upper)
    lower = torch.where(x < -0.999, torch.zeros_like(lower), lower)
    return (upper - lower).clamp(min=1e-12).log()


def _cdf(x: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))
