"""A denoiser: what a network finds in noisy data, guided and kept in range. Samplers are functions over it.

Classifier-free guidance: Ho and Salimans, 2022, arXiv 2207.12598.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from darkroom.diffusion.objectives import Objective


# From x (N, C, ...), timesteps (N,) and, for self-conditioning, the x0 of the step before, to the output (N, K, ...).
Network = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Denoised(NamedTuple):
    """What a network finds in x_t, float32.

    x0: the data, (N, C, ...).
    velocity: dx_t/dt, (N, C, ...), where the objective's time is continuous.
    variance: the fraction f in log σ² = f log β + (1 - f) log β̃, (N, C, ...), where the network learns it.
    """

    x0: Tensor
    velocity: Tensor | None = None
    variance: Tensor | None = None


# From x_t (N, C, ...), t (N,) in the objective's units, and the x0 of the step before; None at the first step.
Denoise = Callable[[Tensor, Tensor, Tensor | None], Denoised]
Threshold = Callable[[Tensor], Tensor]


def denoiser(
    network: Network, objective: "Objective", guidance: float = 1.0, threshold: Threshold | None = None
) -> Denoise:
    """Return the denoiser of a network.

    Args:
        network: with its conditions bound to it, see `predict`.
        objective: what the network was trained to predict.
        guidance: scale of classifier-free guidance; 1 evaluates the conditional network alone.
        threshold: applied to x0; None: none is.
    """

    def denoise(x: Tensor, t: Tensor, before: Tensor | None) -> Denoised:
        output = predict(network, x, objective.timesteps(t), before, guidance)
        return objective.denoised(output, x, t, threshold)

    return denoise


# ----------------------------------------------------------------------------------------------------------------------
# Guidance


def guided(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """Return f(x) + s (f(x, y) - f(x)), of the shape of both; 1 is the conditional prediction up to rounding."""
    return unconditional + scale * (conditional - unconditional)


def guided_halves(output: Tensor, scale: float) -> Tensor:
    """Return `guided` of one batch (2 N, ...) whose first half is conditional, (N, ...)."""
    conditional, unconditional = output.chunk(2)
    return guided(conditional, unconditional, scale)


def predict(network: Network, x: Tensor, timesteps: Tensor, before: Tensor | None, scale: float) -> Tensor:
    """Return the output of a network, guided, (N, K, ...); with a scale of 1 the network's own, bit for bit.

    Only the first C channels are guided, as many as x has; a learned variance behind them is the conditional one.

    Args:
        network: with its conditions bound to it: those of N images for a scale of 1; otherwise of 2 N, the second half
            without the conditions that guidance leads away from. Both halves are evaluated in one batch.
        x: noisy data, (N, C, ...).
        timesteps: (N,).
        before: x0 of the step before, (N, C, ...), or None.
        scale: the guidance scale; 0 is the unconditional network.
    """
    if scale == 1:
        return network(x, timesteps, before)
    twice = None if before is None else torch.cat([before, before])
    output = network(torch.cat([x, x]), torch.cat([timesteps, timesteps]), twice)
    channels = x.shape[1]
    prediction = guided_halves(output[:, :channels], scale)
    if output.shape[1] == channels:
        return prediction
    return torch.cat([prediction, output[: len(x), channels:]], dim=1)


# ----------------------------------------------------------------------------------------------------------------------
# Thresholds: guidance drives a predicted x0 beyond [-1, 1], the range of pixels, and colours saturate


def clip_x0(x0: Tensor) -> Tensor:
    """Return x0 clipped to [-1, 1]."""
    return x0.clamp(-1, 1)


def dynamic_threshold(x0: Tensor, percentile: float) -> Tensor:
    """Return x0 clipped to ±s and divided by s, s = max(1, percentile of |x0| in each image).

    Source: Saharia et al., "Photorealistic text-to-image diffusion models", 2022, arXiv 2205.11487, section 2.3.

    Args:
        x0: (N, C, H, W), float32.
        percentile: from 0 to 1, say 0.995.
    """
    size = torch.quantile(x0.flatten(1).abs(), percentile, dim=1).clamp(min=1)[:, None, None, None]
    return x0.clamp(-size, size) / size
