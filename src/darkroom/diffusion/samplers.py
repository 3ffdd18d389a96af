"""Samplers: from noise to data by calls of a denoiser. A solver chooses the times of the calls, and takes the steps."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from darkroom.device import to_device
from darkroom.diffusion.bound import log_variance
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.mean_flow import MeanFlow
from darkroom.diffusion.settings import Sampling
from darkroom.diffusion.spacing import timesteps_of
from darkroom.diffusion.types import Denoise, Denoised, Objective

# One per image, for the noise that solvers add, so that an image does not depend on the others of its batch.
Generators = Sequence[torch.Generator]


class Solver(NamedTuple):
    """A solver from noise to data.

    times: of the calls of the denoiser, (K,), in the objective's units; pairs of `MeanFlow`, (K, 2).
    step: returns the next x from the prediction of call i, i, and x.
    """

    times: Tensor
    step: Callable[[Denoised, int, Tensor], Tensor]


@torch.no_grad()
def sample(
    denoise: Denoise, noise: Tensor, objective: Any, settings: Sampling, generators: Generators | None = None
) -> Tensor:
    """Return the data that a solver makes from `noise`, of its shape, float32.

    Args:
        denoise: the network, guided and thresholded, see `denoiser`.
        noise: standard normal, (N, C, ...), float32.
        objective: the network's; it must fit the solver.
        settings: solver, steps and their spacing.
        generators: for the noise that ddpm, euler_maruyama, and ddim with eta above 0 add.
    """
    return follow(SAMPLERS[settings.solver](objective, settings, generators), denoise, noise)


def follow(path: Solver, denoise: Denoise, x: Tensor) -> Tensor:
    """Return the result of a solver's steps from x, of its shape."""
    before = None
    for number, time in enumerate(to_device(path.times, x.device)):
        denoised = denoise(x, time.expand(len(x), *time.shape), before)
        x, before = path.step(denoised, number, x), denoised.x0
    return x


# ----------------------------------------------------------------------------------------------------------------------
# Along a flow, from t = 1 to 0


def times_of(objective: Any, steps: int, last: float = 0.0) -> Tensor:
    """Return times from noise to `last`, both included, (steps + 1,): equal steps, shifted as the objective's times.

    Sampling starts at the last training time, which is before t = 1 where the prediction is undefined at t = 1.
    """
    # Bit for bit the times of diffusers' FlowMatchEulerDiscreteScheduler.
    times = torch.cat([torch.from_numpy(np.linspace(1, 1 / steps, steps).astype(np.float32)), torch.zeros(1)])
    times[:-1] = times[:-1] * 1000 / 1000
    if not isinstance(objective, Flow):
        return times
    times, first = objective.shifted(times), objective.ends[1]
    return times if (first, last) == (1.0, 0.0) else last + (first - last) * times


def euler(objective: Objective, settings: Sampling, generators: Generators | None) -> Solver:
    """Return Euler's method on equal steps; the average velocity of `MeanFlow` is exact in each."""
    times = times_of(objective, settings.count)
    path = euler_along(times)
    return path._replace(times=objective.spans(times)) if isinstance(objective, MeanFlow) else path


def heun(objective: Objective, settings: Sampling, generators: Generators | None) -> Solver:
    """Return Heun's second-order method: two calls a step, one in the last (Karras et al., 2022, algorithm 1)."""
    times = times_of(objective, settings.count)
    return heun_along(times, torch.cat([times[:1], times[1:-1].repeat_interleave(2)]))


def euler_along(times: Tensor) -> Solver:
    """Return Euler's method through these times, forwards or backwards: x <- x + (t_next - t) v(x, t)."""
    widths = times.diff()
    return Solver(times[:-1], lambda denoised, number, x: x + widths[number] * velocity_of(denoised))


def heun_along(times: Tensor, calls: Tensor) -> Solver:
    """Return Heun's method through these times: x <- x + (t_next - t) (v(x, t) + v(x', t_next)) / 2, x' by Euler's.

    Args:
        times: (K + 1,), rising or falling.
        calls: the times of the calls, both ends of each step in turn; without the last one the last step is Euler's.
    """
    widths = times.diff()
    before: list[Tensor] = []  # x and velocity at the start of the step

    def step(denoised: Denoised, number: int, x: Tensor) -> Tensor:
        velocity, width = velocity_of(denoised), widths[number // 2]
        if number % 2 == 0:
            before[:] = x, velocity
            return x + width * velocity
        start, slope = before
        return start + width * 0.5 * (slope + velocity)

    return Solver(calls, step)


def euler_maruyama(objective: Flow, settings: Sampling, generators: Generators | None) -> Solver:
    """Return the first-order method for the reverse-time SDE, whose images are distributed as the flow's.

    x <- x - h (v - w s) + √(2 w h) z for a step h back in time, s = -ε / σ the score; the last step, of length
    `last_step`, adds no noise. w(t) is c σ, c (constant), c t (linear), ¼ (1 + c cos π (1 - t))² (decreasing towards
    data) or c sin² π t for the scale c (Ma et al., "SiT", 2024, arXiv 2401.08740, section 2.3 and table 7).
    """
    times = times_of(objective, max(1, settings.count - 1), settings.last_step if settings.count > 1 else 0.0)
    times = torch.cat([times, torch.zeros(1)]) if settings.count > 1 else times
    steps = -times.diff()
    alpha, sigma = objective.levels(times[:-1])
    scale = settings.diffusion_scale
    coefficient = {
        "sigma": lambda t: scale * sigma,
        "linear": lambda t: scale * t,
        "constant": lambda t: scale * torch.ones_like(t),
        "decreasing": lambda t: 0.25 * (1 + scale * torch.cos(math.pi * (1 - t))) ** 2,
        "increasing_decreasing": lambda t: scale * torch.sin(math.pi * t) ** 2,
    }[settings.diffusion_coefficient]
    weight = coefficient(times[:-1].double()).float()
    alpha, sigma = alpha.float(), sigma.float()

    def step(denoised: Denoised, number: int, x: Tensor) -> Tensor:
        score = (alpha[number] * denoised.x0 - x) / sigma[number] ** 2
        moved = x - steps[number] * (velocity_of(denoised) - weight[number] * score)
        if number == len(steps) - 1:
            return moved
        assert generators is not None  # noise is added, and each image has its own
        return moved + (2 * weight[number] * steps[number]).sqrt() * normal(x, generators)

    return Solver(times[:-1], step)


def velocity_of(denoised: Denoised) -> Tensor:
    """Return the velocity, which only flows have."""
    assert denoised.velocity is not None  # `darkroom check` verifies that the solver fits the objective
    return denoised.velocity


# ----------------------------------------------------------------------------------------------------------------------
# Down a Gaussian noise schedule


def ddpm(objective: Gaussian, settings: Sampling, generators: Generators | None) -> Solver:
    """Return ancestral sampling (Ho et al., 2020) with the variance of the objective, learned or fixed.

    A subset of the timesteps has the variances of its respaced schedule (Nichol and Dhariwal, 2021). The last step
    gives x0, to which no noise is added.
    """
    timesteps = timesteps_of(len(objective.schedule), settings.steps, settings.spacing)
    schedule = objective.schedule.respaced(timesteps)

    def step(denoised: Denoised, number: int, x: Tensor) -> Tensor:
        x0, steps = denoised.x0.float(), torch.full((len(x),), len(timesteps) - 1 - number, device=x.device)
        if number == len(timesteps) - 1:
            return x0
        assert generators is not None  # noise is added, and each image has its own
        variance = None if denoised.variance is None else denoised.variance.float()
        logvar = log_variance(objective.variance, variance, steps, schedule, x.ndim)
        return schedule.posterior_mean(x0, x, steps) + (0.5 * logvar).exp() * normal(x, generators)

    return Solver(torch.from_numpy(timesteps), step)


def ddim(objective: Gaussian, settings: Sampling, generators: Generators | None) -> Solver:
    """Return the step from a to a', alpha_bar now and then: sqrt(a') x_0 + sqrt(1 - a' - σ²) ε + σ z.

    Song et al., 2020, arXiv 2010.02502, equation 12, with σ² = η² (1 - a') / (1 - a) (1 - a / a').
    """
    timesteps = torch.from_numpy(timesteps_of(len(objective.schedule), settings.steps, settings.spacing))
    alpha_bar = torch.from_numpy(objective.schedule.alphas_cumprod).float()
    alpha_bar = torch.cat([alpha_bar[timesteps], torch.ones(1)])

    def step(denoised: Denoised, number: int, x: Tensor) -> Tensor:
        x0, now, then = denoised.x0.float(), alpha_bar[number], alpha_bar[number + 1]
        epsilon = (x - now**0.5 * x0) / (1 - now) ** 0.5
        sigma = settings.eta * ((1 - then) / (1 - now) * (1 - now / then)) ** 0.5
        left = (1 - then - sigma**2).clamp(min=0)  # with η 1, and next to nothing left in x, below 0 by rounding
        x = then**0.5 * x0 + left**0.5 * epsilon
        if settings.eta > 0:
            assert generators is not None  # noise is added, and each image has its own
            x = x + sigma * normal(x, generators)
        return x

    return Solver(timesteps, step)


# ----------------------------------------------------------------------------------------------------------------------
# For both objectives


def dpm(objective: Gaussian | Flow, settings: Sampling, generators: Generators | None) -> Solver:
    """Return DPM-Solver++(2M) at the objective's times, see `multistep`; its last step gives x_0."""
    if isinstance(objective, Gaussian):
        times = torch.from_numpy(timesteps_of(len(objective.schedule), settings.steps, settings.spacing))
        alpha, sigma = objective.levels(times)
        alpha, sigma = torch.cat([alpha, torch.ones(1).double()]), torch.cat([sigma, torch.zeros(1).double()])
    else:
        times = times_of(objective, settings.count)
        alpha, sigma = objective.levels(times)
        times = times[:-1]
    return multistep(times, alpha, sigma)


def multistep(times: Tensor, alpha: Tensor, sigma: Tensor) -> Solver:
    """Return DPM-Solver++(2M), second order in one call a step (Lu et al., 2022, arXiv 2211.01095, algorithm 2).

    x <- (σ' / σ) x - α' (e^-h - 1) D, D = x_0 + h / (2 h_before) (x_0 - x_0 before), h the step of log(α / σ). The
    first step and the last are of first order.

    Args:
        times: of the calls, (K,).
        alpha: α at these times and at the end, float64 (K + 1,).
        sigma: σ at the same times, float64 (K + 1,), log(α / σ) rising; where it ends at 0, the last step gives x_0.
    """
    widths = (alpha / sigma).log().diff()
    keep, take = (sigma[1:] / sigma[:-1]).float(), (-alpha[1:] * torch.expm1(-widths)).float()
    lean = (widths[1:] / (2 * widths[:-1])).float()
    before: list[Tensor] = []

    def step(denoised: Denoised, number: int, x: Tensor) -> Tensor:
        x0, last = denoised.x0.float(), number == len(keep) - 1
        if last and sigma[-1] == 0:
            return x0
        ahead = x0 + lean[number - 1] * (x0 - before[0]) if number and not last else x0
        before[:] = [x0]
        return keep[number] * x + take[number] * ahead

    return Solver(times, step)


# From the objective, the section of params.yaml and the generators to the solver.
SAMPLERS: dict[str, Callable[[Any, Sampling, Generators | None], Solver]] = {
    "euler": euler,
    "heun": heun,
    "euler_maruyama": euler_maruyama,
    "ddpm": ddpm,
    "ddim": ddim,
    "dpm": dpm,
}


def normal(like: Tensor, generators: Generators) -> Tensor:
    """Return standard normal noise of a shape, each image's from its own generator."""
    rows = [torch.randn(like.shape[1:], generator=each, device=each.device) for each in generators]
    return torch.stack(rows).to(like.device)
