"""Keeps a predicted x_0 within [-1, 1], where it is pixels: guidance drives it beyond, and colours saturate."""

import torch
from torch import Tensor


def clipped(x0: Tensor) -> Tensor:
    """Return x_0 cut off at -1 and 1."""
    return x0.clamp(-1, 1)


def dynamically_clipped(x0: Tensor, percentile: float) -> Tensor:
    """Return x_0 cut off at ±s and divided by s, s = max(1, percentile of |x_0| in each image).

    Source: Saharia et al., "Photorealistic text-to-image diffusion models", 2022, arXiv 2205.11487, section 2.3.

    Args:
        x0: (N, C, H, W), float32.
        percentile: from 0 to 1, say 0.995.
    """
    size = torch.quantile(x0.flatten(1).abs(), percentile, dim=1).clamp(min=1)[:, None, None, None]
    return x0.clamp(-size, size) / size
