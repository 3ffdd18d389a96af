"""A U-Net as a sampler asks it: x_0, guided and kept within its range."""

from collections.abc import Callable

import torch
from torch import Tensor

from darkroom.diffusion.denoising import Denoise, Denoised
from darkroom.diffusion.prediction import Prediction
from darkroom.models.decoder.unet import Conditions

UNet = Callable[[Tensor, Tensor, Conditions, Tensor | None], Tensor]


def denoiser(
    unet: UNet,
    prediction: Prediction,
    told: Conditions,
    guidance: float = 1.0,
    keep: Callable[[Tensor], Tensor] | None = None,
    self_condition: bool = False,
) -> Denoise:
    """Return what a sampler asks.

    Guidance: f(x, null) + scale * (f(x, told) - f(x, null)), image and text both nulled (Ho and Salimans, 2022, arXiv
    2207.12598); the share of the variance is that of f(x, told).

    Args:
        unet: maps x, t, conditions and the x_0 of the step before to its output.
        prediction: what that output means.
        told: the conditions.
        guidance: 1 asks the conditional U-Net alone, bit for bit; so does one that is told neither image nor text.
        keep: applied to x_0, see `diffusion.thresholds`; None: as it is.
        self_condition: whether the U-Net is told the x_0 of the step before.
    """
    alone = guidance == 1 or (told.image is None and told.text is None)
    everything = told if alone else told.joined(told.nulled())

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        before = before if self_condition else None
        if alone:
            mean, share = prediction.split(unet(x, steps, everything, before))
        else:
            twice = None if before is None else torch.cat([before, before])
            output = unet(torch.cat([x, x]), torch.cat([steps, steps]), everything, twice)
            conditional, nothing = output.chunk(2)
            mean, share = prediction.split(conditional)
            null = prediction.split(nothing)[0]
            mean = null + guidance * (mean - null)
        x0 = prediction.x0(mean, x, steps)
        return Denoised(x0 if keep is None else keep(x0), share)

    return denoise
