"""In-painting by Gaussian diffusion: RePaint."""

import torch
from torch import Tensor

from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.samplers import Generators, ddpm, normal
from darkroom.diffusion.settings import Sampling
from darkroom.diffusion.types import Denoise, Objective
from darkroom.errors import DarkroomError


@torch.no_grad()
def inpaint(
    denoise: Denoise,
    noise: Tensor,
    objective: Objective,
    how: Sampling,
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
        how: steps and spacing of ddpm.
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
    path = ddpm(objective, how, generators)
    alpha_bar = torch.from_numpy(objective.schedule.alphas_cumprod).to(torch.float32)
    alpha_bar = torch.cat([alpha_bar[path.times], torch.ones(1)])
    x, before = noise, None
    for number, time in enumerate(path.times):
        now, then = alpha_bar[number], alpha_bar[number + 1]
        for again in reversed(range(resamples if number < len(path.times) - 1 else 1)):
            there = now.sqrt() * known + (1 - now).sqrt() * normal(noise, generators)
            x = mask * there + (1 - mask) * x
            found = denoise(x, time.to(x.device).expand(len(x)), before)
            before = found.x0
            x = path.step(found, number, x)
            if again:
                x = (now / then).sqrt() * x + (1 - now / then).sqrt() * normal(noise, generators)
    return mask * known + (1 - mask) * x
