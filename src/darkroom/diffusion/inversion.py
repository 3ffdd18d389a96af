"""Editing of real images: inversion to the noise that a deterministic solver maps to them, and in-painting."""

from typing import Any

import torch
from torch import Tensor

from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.samplers import Generators, Solver, ddpm, euler_along, follow, heun_along, normal, times_of
from darkroom.diffusion.settings import Sampling
from darkroom.diffusion.spacing import timesteps_of
from darkroom.diffusion.types import Denoise, Denoised, Objective
from darkroom.errors import DarkroomError

# The solvers whose steps can be taken backwards, by objective; the first one is the default.
REVERSIBLE: dict[str, tuple[str, ...]] = {"flow": ("euler", "heun"), "gaussian": ("ddim",)}


@torch.no_grad()
def encode(denoise: Denoise, x0: Tensor, objective: Any, settings: Sampling) -> Tensor:
    """Return the noise that a deterministic solver maps to `x0`, of its shape, float32, by reversing its steps.

    The solver is DDIM (Song et al., 2020, arXiv 2010.02502, section 5.4) for Gaussian diffusion, and Euler's or Heun's
    method for a flow. The inverse is exact up to the error of the steps.

    Raises:
        DarkroomError: see `require_reversible`.
    """
    require_reversible(objective, settings)
    reverse = {"ddim": _ddim_reversed, "euler": _euler_reversed, "heun": _heun_reversed}[settings.solver]
    return follow(reverse(objective, settings), denoise, x0)


def require_reversible(objective: Any, settings: Sampling) -> None:
    """Check that a solver's steps can be reversed.

    Raises:
        DarkroomError: the solver adds noise or reads earlier steps, or the velocity is not finite at data, where
            inversion starts.
    """
    known = REVERSIBLE["gaussian" if isinstance(objective, Gaussian) else "flow"]
    if settings.solver not in known or settings.eta:
        why = "uses previous steps" if settings.solver == "dpm" else "adds noise"
        solver = f"{settings.solver} with eta {settings.eta}" if settings.solver in known else settings.solver
        raise DarkroomError(f"{solver} {why}, so its steps cannot be reversed: use {' or '.join(known)}.")
    if isinstance(objective, Flow) and (objective.target != "velocity" or objective.path == "vp"):
        raise DarkroomError(
            "inversion starts at zero noise, where only a predicted velocity on the paths linear and gvp is finite, "
            f"but this network predicts {objective.target} on the path {objective.path}."
        )


def _ddim_reversed(objective: Gaussian, settings: Sampling) -> Solver:
    times = torch.from_numpy(timesteps_of(len(objective.schedule), settings.steps, settings.spacing)).flip(0)
    left = torch.from_numpy(objective.schedule.alphas_cumprod)[times]
    grow, share = (1 / left).sqrt().float(), (1 / left - 1).sqrt().float()
    after = torch.cat([left[1:], torch.zeros(1)])  # after the last timestep only noise is left
    alpha, sigma = after.sqrt().float(), (1 - after).sqrt().float()

    def step(denoised: Denoised, number: int, x: Tensor) -> Tensor:
        epsilon = (grow[number] * x - denoised.x0) / share[number]
        return alpha[number] * denoised.x0 + sigma[number] * epsilon

    return Solver(times, step)


def _euler_reversed(objective: Any, settings: Sampling) -> Solver:
    return euler_along(times_of(objective, settings.count).flip(0))


def _heun_reversed(objective: Any, settings: Sampling) -> Solver:
    times = times_of(objective, settings.count).flip(0)
    return heun_along(times, torch.stack([times[:-1], times[1:]], dim=1).flatten())


@torch.no_grad()
def inpaint(
    denoise: Denoise,
    noise: Tensor,
    objective: Objective,
    settings: Sampling,
    known: Tensor,
    mask: Tensor,
    *,
    resamples: int = 5,
    generators: Generators,
) -> Tensor:
    """Return images that are `known` where the mask is 1 and generated elsewhere (RePaint).

    Each step of ddpm is taken `resamples` times: the known pixels, with the noise of that step, replace the generated
    ones, and between two tries the image goes one step back, x_t = sqrt(α) x_{t-1} + sqrt(1 - α) ε, so that both parts
    agree (Lugmayr et al., 2022, arXiv 2201.09865, algorithm 1).

    Args:
        denoise: see `sample`.
        noise: see `sample`.
        objective: Gaussian diffusion.
        settings: steps and spacing of ddpm.
        known: x0, of the shape of `noise`.
        mask: 1 where pixels are known, else 0, (N, 1, H, W).
        resamples: tries of each step; 1: known pixels are inserted without harmonisation.
        generators: one per image, for all noise but the first.

    Raises:
        DarkroomError: the objective is not Gaussian diffusion.
    """
    if not isinstance(objective, Gaussian):
        raise DarkroomError("in-painting needs Gaussian diffusion: set `sample_decoder.pictures.inpainted` to 0.")
    path = ddpm(objective, settings, generators)
    alpha_bar = torch.from_numpy(objective.schedule.alphas_cumprod).to(torch.float32)
    alpha_bar = torch.cat([alpha_bar[path.times], torch.ones(1)])
    x, before = noise, None
    for number, time in enumerate(path.times):
        now, then = alpha_bar[number], alpha_bar[number + 1]
        for again in reversed(range(resamples if number < len(path.times) - 1 else 1)):
            noised = now.sqrt() * known + (1 - now).sqrt() * normal(noise, generators)
            x = mask * noised + (1 - mask) * x
            denoised = denoise(x, time.to(x.device).expand(len(x)), before)
            before = denoised.x0
            x = path.step(denoised, number, x)
            if again:
                x = (now / then).sqrt() * x + (1 - now / then).sqrt() * normal(noise, generators)
    return mask * known + (1 - mask) * x
