"""Samplers of Gaussian diffusion: from noise to an image, by diffusers' schedulers behind one adapter.

A network is asked through `Denoise`, which answers with x_0 whatever the network predicts. So guidance and thresholds
are done once, and every solver gets the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from darkroom.diffusion.noise import NoiseSchedule

Solver = Literal["ddpm", "ddim", "dpm", "unipc"]


class Denoised(NamedTuple):
    """What a network takes for x_0, (N, C, H, W), and its share of the log variance, likewise, where it learns it."""

    x0: Tensor
    share: Tensor | None = None


# From x_t (N, C, H, W), t (N,) int64 and, for self-conditioning, the x_0 of the step before, or None at the first.
Denoise = Callable[[Tensor, Tensor, Tensor | None], Denoised]


def scheduler_of(solver: Solver, schedule: NoiseSchedule, steps: int, learned_variance: bool = False) -> Any:
    """Return diffusers' scheduler of a solver, with its steps set: evenly spaced, the first at the most noise.

    ddpm: ancestral sampling (Ho et al., 2020), with the network's variance where it learns it, else the posterior's.
    ddim: Song et al., 2020, arXiv 2010.02502. dpm: DPM-Solver++(2M), Lu et al., 2022, arXiv 2211.01095. unipc: Zhao et
    al., 2023, arXiv 2302.04867.
    """
    common: dict[str, Any] = {
        "num_train_timesteps": len(schedule),
        "trained_betas": schedule.betas,
        "prediction_type": "sample",
        "timestep_spacing": "trailing",
    }
    scheduler: Any
    # Each by its module, where it is chosen: `diffusers.schedulers` brings the others too, and two of them scipy.
    if solver == "ddpm":
        from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

        kind = "learned_range" if learned_variance else "fixed_small"
        scheduler = DDPMScheduler(**common, variance_type=kind, clip_sample=False)
    elif solver == "ddim":
        from diffusers.schedulers.scheduling_ddim import DDIMScheduler

        scheduler = DDIMScheduler(**common, clip_sample=False, set_alpha_to_one=True)
    elif solver == "dpm":
        from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler

        scheduler = DPMSolverMultistepScheduler(**common, algorithm_type="dpmsolver++", final_sigmas_type="zero")
    else:
        from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler

        scheduler = UniPCMultistepScheduler(**common, final_sigmas_type="zero")
    scheduler.set_timesteps(steps)
    return scheduler


@torch.no_grad()
def sample(
    denoise: Denoise,
    noise: Tensor,
    schedule: NoiseSchedule,
    solver: Solver,
    steps: int,
    *,
    eta: float = 0.0,
    learned_variance: bool = False,
    generators: Sequence[torch.Generator] | None = None,
) -> Tensor:
    """Return what `noise` becomes, x_0, of its shape, float32.

    Args:
        denoise: the network, guided and clipped.
        noise: standard normal, (N, ...), float32.
        schedule: the network's.
        solver: ddpm, ddim, dpm or unipc.
        steps: calls of the network.
        eta: of ddim, 0: no noise is added on the way, 1: as much as ddpm adds.
        learned_variance: whether `denoise` gives shares of the log variance, which ddpm uses.
        generators: of the noise that ddpm, and ddim with eta above 0, add: one an image, so that an image does not
            depend on its company.
    """
    scheduler = scheduler_of(solver, schedule, steps, learned_variance)
    x, before = noise, None
    for time, after in zip(scheduler.timesteps, [*scheduler.timesteps[1:], None], strict=True):
        found = denoise(x, time.to(x.device, torch.int64).expand(len(x)), before)
        if solver == "ddim":
            left = scheduler.alphas_cumprod
            to = left.new_ones(()) if after is None else left[after]
            x, before = _ddim_step(found.x0.float(), x, left[time], to, eta, generators), found.x0
        else:
            x, before = _step(scheduler, solver, found, time, x, generators), found.x0
    return x


def _ddim_step(
    x0: Tensor,
    x: Tensor,
    now: Tensor,
    then: Tensor,
    eta: float,
    generators: Sequence[torch.Generator] | None,
) -> Tensor:
    """Return x one step on, from ᾱ now to ᾱ then: sqrt(ᾱ') x_0 + sqrt(1 - ᾱ' - σ²) ε + σ z, (N, ...).

    Song et al., 2020, equation 12, with σ² = η² (1 - ᾱ') / (1 - ᾱ) (1 - ᾱ / ᾱ'). diffusers' own step goes T // steps
    on, which is not the next one of its list where the steps do not divide T.
    """
    epsilon = (x - now**0.5 * x0) / (1 - now) ** 0.5
    sigma = eta * ((1 - then) / (1 - now) * (1 - now / then)) ** 0.5
    found = then**0.5 * x0 + (1 - then - sigma**2) ** 0.5 * epsilon
    if eta > 0:
        assert generators is not None  # noise is added, and each image has its own
        found = found + sigma * _normal(x, generators)
    return found


def _step(
    scheduler: Any,
    solver: Solver,
    found: Denoised,
    time: Tensor,
    x: Tensor,
    generators: Sequence[torch.Generator] | None,
) -> Tensor:
    """Return x one step on; after the last step of ddpm that is x_0, to which no noise is added.

    With a learned variance diffusers adds some where the last step is not step 0: its lower bound is 1e-20 there, so a
    share near 1 is nearly all of β.
    """
    output, own = found.x0.float(), None if generators is None else list(generators)
    if solver == "ddpm" and time == scheduler.timesteps[-1]:
        return output
    more: dict[str, Any] = {}
    if solver == "ddpm":
        if scheduler.config.variance_type == "learned_range":
            assert found.share is not None  # `learned_variance` says that it is there
            output = torch.cat([output, 2 * found.share.float() - 1], dim=1)
        more = {"generator": own}
    return scheduler.step(output, time, x, **more).prev_sample


@torch.no_grad()
def inpaint(
    denoise: Denoise,
    noise: Tensor,
    schedule: NoiseSchedule,
    steps: int,
    known: Tensor,
    mask: Tensor,
    *,
    resamples: int = 5,
    learned_variance: bool = False,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """Return images that are `known` where the mask is 1 and invented elsewhere (RePaint).

    Each step of ddpm is taken `resamples` times: what is known, with the noise of that step, replaces what was made,
    and between two tries the image goes one step back, x_t = sqrt(α) x_{t-1} + sqrt(1 - α) ε, so that both parts come
    to fit (Lugmayr et al., 2022, arXiv 2201.09865, algorithm 1).

    Args:
        denoise: as of `sample`.
        noise: as of `sample`.
        schedule: as of `sample`.
        steps: as of `sample`.
        known: x_0, of the shape of `noise`.
        mask: 1 where it is known, 0 where it is not, (N, 1, H, W).
        resamples: tries of each step; 1: known pixels are put in and nothing is harmonised.
        learned_variance: as of `sample`.
        generators: of all noise but the first, one an image.
    """
    scheduler = scheduler_of("ddpm", schedule, steps, learned_variance)
    times = [int(time) for time in scheduler.timesteps]
    left = torch.from_numpy(schedule.alphas_cumprod).to(torch.float32)
    x, before = noise, None
    for time, after in zip(times, [*times[1:], None], strict=True):
        now = left[time]
        then = left[after] if after is not None else torch.ones(())
        for again in reversed(range(resamples if after is not None else 1)):
            there = now.sqrt() * known + (1 - now).sqrt() * _normal(noise, generators)
            x = mask * there + (1 - mask) * x
            found = denoise(x, torch.full((len(x),), time, device=x.device), before)
            before = found.x0
            x = _step(scheduler, "ddpm", found, torch.tensor(time), x, generators)
            if again:
                x = (now / then).sqrt() * x + (1 - now / then).sqrt() * _normal(noise, generators)
    return mask * known + (1 - mask) * x


def _normal(like: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """Return standard normal noise of a shape, each image's from its own generator."""
    rows = [torch.randn(like.shape[1:], generator=each, device=each.device) for each in generators]
    return torch.stack(rows).to(like.device)
