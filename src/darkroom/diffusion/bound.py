"""The variational bound of Gaussian diffusion: the variance of a step, one term a timestep, and bits per dim.

Ho et al., 2020, arXiv 2006.11239, equations 5 to 7; Nichol and Dhariwal, 2021, "Improved denoising diffusion", arXiv
2102.09672. All terms are in bits, the mean over an image's numbers, (N,).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from darkroom.diffusion.schedules import NoiseSchedule, gather
from darkroom.diffusion.settings import Variance


def log_variance(
    kind: Variance, predicted: Tensor | None, steps: Tensor, schedule: NoiseSchedule, ndim: int = 4
) -> Tensor:
    """Return log σ² of the steps from t to t - 1, float32, (N, 1, ..., 1) or of the shape of the prediction.

    Args:
        kind: `fixed_small` is the posterior's, `fixed_large` is β with the posterior's at the first step,
            `learned_range` lies between the logarithms of the posterior's variance and β.
        predicted: for `learned` log σ² itself, for `learned_range` the fraction f in f log β + (1 - f) log β̃.
        steps: t, (N,) int64.
        schedule: of all timesteps, or respaced.
        ndim: dimensions of the data.
    """
    if kind == "learned":
        assert predicted is not None
        return predicted
    small, betas = schedule.log_posterior_variance, np.log(schedule.betas)
    if kind == "fixed_small":
        return gather(small, steps, ndim)
    if kind == "fixed_large":
        return gather(np.concatenate([small[:1], betas[1:]]), steps, ndim)
    assert predicted is not None
    low, high = gather(small, steps, predicted.ndim), gather(betas, steps, predicted.ndim)
    return predicted * high + (1 - predicted) * low


def variational_bound(
    x0: Tensor, x: Tensor, predicted_x0: Tensor, logvar: Tensor, steps: Tensor, schedule: NoiseSchedule
) -> Tensor:
    """Return one timestep's term of the bound.

    KL(q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t)) for t > 0; for t = 0 the negative log-likelihood of x_0 under p with
    256 grey levels.

    Args:
        x0: the data, in [-1, 1] if pixels, (N, C, ...).
        x: x_t.
        predicted_x0: the prediction; detached where the bound teaches the variance alone.
        logvar: from `log_variance`.
        steps: t, (N,) int64.
        schedule: the noise schedule.
    """
    truth, guess = (schedule.posterior_mean(each, x, steps) for each in (x0, predicted_x0))
    logvar = logvar.expand_as(x)
    divergence = _divergence(truth, gather(schedule.log_posterior_variance, steps, x.ndim), guess, logvar)
    likelihood = _log_likelihood(x0, guess, 0.5 * logvar)
    first = (steps == 0).reshape(-1, *(1,) * (x.ndim - 1))
    return _bits(torch.where(first, -likelihood, divergence))


class Bits(NamedTuple):
    """The bound of data in bits per dim, which bounds a lossless code from above; terms are (N,) or (N, T).

    total: the sum of `prior` and `steps`.
    prior: KL(q(x_T | x_0) || N(0, I)).
    steps: the term of each timestep; column 0 is that of the first, the decoder's.
    x0_mse, eps_mse: squared errors of the prediction at each timestep.
    """

    total: Tensor
    prior: Tensor
    steps: Tensor
    x0_mse: Tensor
    eps_mse: Tensor


# From x_t (N, C, ...) and t (N,) to the predicted x_0 and log σ² of the step.
Predict = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@torch.no_grad()
def bits_per_dim(predict: Predict, x0: Tensor, noise: Callable[[int], Tensor], schedule: NoiseSchedule) -> Bits:
    """Return the bound of data and its terms, evaluated at every timestep with independent noise.

    Args:
        predict: the network.
        x0: (N, C, ...), float32.
        noise: standard normal numbers of the shape of x0 for a timestep; called from the last one to 0.
        schedule: of all timesteps, or respaced; `predict` receives its step numbers.
    """
    columns: list[tuple[Tensor, Tensor, Tensor]] = []
    for step in reversed(range(len(schedule))):
        steps, eps = torch.full((len(x0),), step, device=x0.device), noise(step)
        x = schedule.add_noise(x0, eps, steps)
        predicted, logvar = predict(x, steps)
        alpha, sigma = schedule.signal_and_noise(steps, x0.ndim)
        columns.append(
            (
                variational_bound(x0, x, predicted, logvar, steps, schedule),
                (predicted - x0).square().flatten(1).mean(1),
                ((x - alpha * predicted) / sigma - eps).square().flatten(1).mean(1),
            )
        )
    terms, x0_mse, eps_mse = (torch.stack(each, dim=1) for each in zip(*reversed(columns), strict=True))
    last = torch.full((len(x0),), len(schedule) - 1, device=x0.device)
    alpha, sigma = schedule.signal_and_noise(last, x0.ndim)
    zero = torch.zeros_like(x0)
    prior = _bits(_divergence(alpha * x0, (2 * sigma.log()).expand_as(x0), zero, zero))
    return Bits(prior + terms.sum(1), prior, terms, x0_mse, eps_mse)


def _bits(nats: Tensor) -> Tensor:
    return nats.flatten(1).mean(1) / math.log(2)


def _divergence(mean: Tensor, logvar: Tensor, other_mean: Tensor, other_logvar: Tensor) -> Tensor:
    """Return KL(N(mean, exp(logvar)) || N(other_mean, exp(other_logvar))), of the shape of the means."""
    apart = (mean - other_mean).square() * (-other_logvar).exp()
    return 0.5 * (other_logvar - logvar - 1 + (logvar - other_logvar).exp() + apart)


def _log_likelihood(x: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return log of the mass that N(mean, std²) puts on the grey level of x, of 256 from -1 to 1; the ends are open."""
    away, scale = x - mean, (-log_std).exp()
    upper, lower = _cdf((away + 1 / 255) * scale), _cdf((away - 1 / 255) * scale)
    upper = torch.where(x > 0.999, torch.ones_like(upper), upper)
    lower = torch.where(x < -0.999, torch.zeros_like(lower), lower)
    return (upper - lower).clamp(min=1e-12).log()


def _cdf(x: Tensor) -> Tensor:
    """Return the normal distribution's integral in the approximation of published bits per dim.

    ½ (1 + tanh(√(2/π) (x + 0.044715 x³))), within 5e-4 (Page, 1977, "Approximations to the cumulative normal
    function").
    """
    return 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
