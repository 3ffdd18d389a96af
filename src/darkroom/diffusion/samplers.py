"""Samplers: from noise to data by calls of a denoiser. A solver says at which times it is called, and takes the steps.

Solvers that are diffusers' are imported where they are chosen: `diffusers.schedulers` brings the others too, and two of
them scipy.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from darkroom.diffusion.denoiser import Denoise, Denoised
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.objectives import Objective
from darkroom.errors import DarkroomError

# One an image, of the noise that is added on the way, so that an image does not depend on the others of its batch.
Generators = Sequence[torch.Generator]


class Solver(NamedTuple):
    """One way from noise to data.

    times: of the calls of the denoiser, (K,), in the objective's units.
    step: returns the next x from what call number i found in x, and x.
    """

    times: Tensor
    step: Callable[[Denoised, int, Tensor], Tensor]


@torch.no_grad()
def sample(
    denoise: Denoise,
    noise: Tensor,
    objective: Any,
    solver: str,
    steps: int,
    *,
    eta: float = 0.0,
    generators: Generators | None = None,
) -> Tensor:
    """Return the data that a solver carries `noise` to, of its shape, float32.

    Args:
        denoise: the network, guided and its x0 kept in range, see `denoiser`.
        noise: standard normal, (N, C, ...), float32.
        objective: the network's; the solver fits it.
        solver: a key of `SAMPLERS`.
        steps: of the solver.
        eta: of ddim, 0: no noise is added on the way, 1: as much as ddpm adds.
        generators: of the noise that ddpm, and ddim with eta above 0, add.
    """
    path = SAMPLERS[solver](objective, steps, eta, generators)
    x, before = noise, None
    for number, time in enumerate(path.times):
        found = denoise(x, time.to(x.device).expand(len(x)), before)
        x, before = path.step(found, number, x), found.x0
    return x


# ----------------------------------------------------------------------------------------------------------------------
# Along a flow, from t = 1 to 0

_TIMESTEPS = 1000  # of diffusers' flow schedulers, for t = 1


def euler(objective: Objective, steps: int, eta: float, generators: Generators | None) -> Solver:
    """Return Euler's method on equal steps: x <- x + (t_next - t) v(x, t).

    Bit for bit diffusers' FlowMatchEulerDiscreteScheduler, whose import takes longer than torch's own.
    """
    times = torch.from_numpy(np.linspace(1, 1 / steps, steps).astype(np.float32))
    widths = torch.cat([times[1:], torch.zeros(1)]) - times
    return Solver(times * _TIMESTEPS / _TIMESTEPS, lambda found, number, x: x + widths[number] * _velocity(found))


def heun(objective: Objective, steps: int, eta: float, generators: Generators | None) -> Solver:
    """Return Heun's second-order method: two calls a step, one in the last (Karras et al., 2022, algorithm 1)."""
    from diffusers.schedulers.scheduling_flow_match_heun_discrete import FlowMatchHeunDiscreteScheduler

    scheduler: Any = FlowMatchHeunDiscreteScheduler(num_train_timesteps=_TIMESTEPS)
    scheduler.set_timesteps(steps)
    timesteps = scheduler.timesteps

    def step(found: Denoised, number: int, x: Tensor) -> Tensor:
        return scheduler.step(_velocity(found), timesteps[number], x).prev_sample

    return Solver((timesteps / _TIMESTEPS).to(torch.float32), step)


def _velocity(found: Denoised) -> Tensor:
    assert found.velocity is not None  # `darkroom check` sees to it that the solver fits the objective
    return found.velocity


# ----------------------------------------------------------------------------------------------------------------------
# Down a Gaussian noise schedule: evenly spaced timesteps, the first at the most noise


def scheduler_of(kind: Any, objective: Gaussian, steps: int, **settings: Any) -> Any:
    """Return diffusers' scheduler of a class for predictions of x0, with its timesteps set."""
    scheduler = kind(
        num_train_timesteps=len(objective.schedule),
        trained_betas=objective.schedule.betas,
        prediction_type="sample",
        timestep_spacing="trailing",
        **settings,
    )
    scheduler.set_timesteps(steps)
    return scheduler


def ddpm(objective: Gaussian, steps: int, eta: float, generators: Generators | None) -> Solver:
    """Return ancestral sampling (Ho et al., 2020), with the learned variance where there is one, else the posterior's.

    The last step gives x0, to which no noise is added. With a learned variance diffusers adds some where the last step
    is not timestep 0: its lower bound is 1e-20 there, so a fraction near 1 is nearly all of β.
    """
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

    kind = "learned_range" if objective.learned_variance else "fixed_small"
    scheduler = scheduler_of(DDPMScheduler, objective, steps, variance_type=kind, clip_sample=False)
    timesteps, own = scheduler.timesteps, None if generators is None else list(generators)

    def step(found: Denoised, number: int, x: Tensor) -> Tensor:
        output = found.x0.float()
        if number == len(timesteps) - 1:
            return output
        if objective.learned_variance:
            assert found.variance is not None
            output = torch.cat([output, 2 * found.variance.float() - 1], dim=1)
        return scheduler.step(output, timesteps[number], x, generator=own).prev_sample

    return Solver(timesteps.to(torch.int64), step)


def ddim(objective: Gaussian, steps: int, eta: float, generators: Generators | None) -> Solver:
    """Return the step from a to a', alpha_bar now and then: sqrt(a') x_0 + sqrt(1 - a' - σ²) ε + σ z.

    Song et al., 2020, arXiv 2010.02502, equation 12, with σ² = η² (1 - a') / (1 - a) (1 - a / a'). diffusers' own step
    goes T // steps on, which is not the next timestep of its list where the steps do not divide T.
    """
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler

    scheduler = scheduler_of(DDIMScheduler, objective, steps, clip_sample=False, set_alpha_to_one=True)
    timesteps = scheduler.timesteps
    alpha_bar = torch.cat([scheduler.alphas_cumprod[timesteps], torch.ones(1)])

    def step(found: Denoised, number: int, x: Tensor) -> Tensor:
        x0, now, then = found.x0.float(), alpha_bar[number], alpha_bar[number + 1]
        epsilon = (x - now**0.5 * x0) / (1 - now) ** 0.5
        sigma = eta * ((1 - then) / (1 - now) * (1 - now / then)) ** 0.5
        x = then**0.5 * x0 + (1 - then - sigma**2) ** 0.5 * epsilon
        if eta > 0:
            assert generators is not None  # noise is added, and each image has its own
            x = x + sigma * _normal(x, generators)
        return x

    return Solver(timesteps.to(torch.int64), step)


def dpm(objective: Gaussian, steps: int, eta: float, generators: Generators | None) -> Solver:
    """Return DPM-Solver++(2M) (Lu et al., 2022, arXiv 2211.01095)."""
    from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler as Scheduler

    return _of_diffusers(
        scheduler_of(Scheduler, objective, steps, algorithm_type="dpmsolver++", final_sigmas_type="zero")
    )


def unipc(objective: Gaussian, steps: int, eta: float, generators: Generators | None) -> Solver:
    """Return UniPC (Zhao et al., 2023, arXiv 2302.04867)."""
    from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler as Scheduler

    return _of_diffusers(scheduler_of(Scheduler, objective, steps, final_sigmas_type="zero"))


def _of_diffusers(scheduler: Any) -> Solver:
    def step(found: Denoised, number: int, x: Tensor) -> Tensor:
        return scheduler.step(found.x0.float(), scheduler.timesteps[number], x).prev_sample

    return Solver(scheduler.timesteps.to(torch.int64), step)


# From the objective, the steps, eta and the generators to the solver.
SAMPLERS: dict[str, Callable[[Any, int, float, Generators | None], Solver]] = {
    "euler": euler,
    "heun": heun,
    "ddpm": ddpm,
    "ddim": ddim,
    "dpm": dpm,
    "unipc": unipc,
}


# ----------------------------------------------------------------------------------------------------------------------
# In-painting


@torch.no_grad()
def inpaint(
    denoise: Denoise,
    noise: Tensor,
    objective: Objective,
    steps: int,
    known: Tensor,
    mask: Tensor,
    *,
    resamples: int = 5,
    generators: Generators,
) -> Tensor:
    """Return images that are `known` where the mask is 1 and generated elsewhere (RePaint).

    Each step of ddpm is taken `resamples` times: what is known, with the noise of that step, replaces what was made,
    and between two tries the image goes one step back, x_t = sqrt(α) x_{t-1} + sqrt(1 - α) ε, so that both parts come
    to fit (Lugmayr et al., 2022, arXiv 2201.09865, algorithm 1).

    Args:
        denoise: as of `sample`.
        noise: as of `sample`.
        objective: Gaussian diffusion.
        steps: as of `sample`.
        known: x0, of the shape of `noise`.
        mask: 1 where it is known, 0 where it is not, (N, 1, H, W).
        resamples: tries of each step; 1: known pixels are put in and nothing is harmonised.
        generators: of all noise but the first, one an image.

    Raises:
        DarkroomError: the objective has no timesteps to go back by.
    """
    if not isinstance(objective, Gaussian):
        raise DarkroomError(
            "in-painting follows Gaussian diffusion, and a U-Net was trained with another objective: set "
            "`sample_decoder.pictures.inpainted` to 0."
        )
    path = ddpm(objective, steps, 0.0, generators)
    alpha_bar = torch.from_numpy(objective.schedule.alphas_cumprod).to(torch.float32)
    alpha_bar = torch.cat([alpha_bar[path.times], torch.ones(1)])
    x, before = noise, None
    for number, time in enumerate(path.times):
        now, then = alpha_bar[number], alpha_bar[number + 1]
        for again in reversed(range(resamples if number < len(path.times) - 1 else 1)):
            there = now.sqrt() * known + (1 - now).sqrt() * _normal(noise, generators)
            x = mask * there + (1 - mask) * x
            found = denoise(x, time.to(x.device).expand(len(x)), before)
            before = found.x0
            x = path.step(found, number, x)
            if again:
                x = (now / then).sqrt() * x + (1 - now / then).sqrt() * _normal(noise, generators)
    return mask * known + (1 - mask) * x


def _normal(like: Tensor, generators: Generators) -> Tensor:
    """Return standard normal noise of a shape, each image's from its own generator."""
    rows = [torch.randn(like.shape[1:], generator=each, device=each.device) for each in generators]
    return torch.stack(rows).to(like.device)
