"""Classifier-free guidance (Ho and Salimans, 2022, arXiv 2207.12598)."""

from collections.abc import Callable

import torch
from torch import Tensor

Velocity = Callable[[Tensor, Tensor], Tensor]
Conditional = Callable[[Tensor, Tensor, Tensor], Tensor]


def guided(model: Conditional, labels: Tensor, null_label: int, scale: float) -> Velocity:
    """Return v(x, t) = v(x, t, null) + scale * (v(x, t, label) - v(x, t, null)), on all channels.

    Args:
        model: maps latents (N, C, H, W), times (N,) and labels (N,) to (N, C, H, W).
        labels: the class of each image, (N,), int64.
        null_label: the label that training put in place of a dropped one.
        scale: 1 asks the conditional model alone, 0 the unconditional one.
    """
    if scale == 1:
        return lambda x, time: model(x, time, labels)
    nothing = torch.full_like(labels, null_label)

    def velocity(x: Tensor, time: Tensor) -> Tensor:
        both = model(x.repeat(2, 1, 1, 1), time.repeat(2), torch.cat([labels, nothing]))
        conditional, unconditional = both.chunk(2)
        return unconditional + scale * (conditional - unconditional)

    return velocity
