"""Low-resolution conditioning of an up-sampler: on the true image made small, or on what the stage before it made.

An up-sampler that only ever saw perfect small images repeats the faults of those it is given. So in training they are
blurred (Ramesh et al., 2022, arXiv 2204.06125, section 2.1, after Saharia et al., 2021, "SR3") or noised, and it is
conditioned on how much noise there is (Ho et al., 2021, "Cascaded diffusion models", arXiv 2106.15282).
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional


def downsampled(images: Tensor, size: int, how: Literal["area", "nearest"] = "area") -> Tensor:
    """Return square images (N, C, S, S) at `size`, which divides S: the mean of each block, or its first pixel."""
    if images.shape[-1] == size:
        return images
    factor = images.shape[-1] // size
    if how == "nearest":
        return images[..., ::factor, ::factor].contiguous()
    return functional.avg_pool2d(images, factor)


def upsampled(images: Tensor, size: int) -> Tensor:
    """Return square images (N, C, s, s) at `size`, a multiple of s: every pixel a block."""
    factor = size // images.shape[-1]
    return images.repeat_interleave(factor, dim=2).repeat_interleave(factor, dim=3)


def blurred(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Return images (N, C, H, W) under a Gaussian blur of each one's own width; edges are mirrored.

    Args:
        images: to blur.
        sigma: of each, in pixels, (N,), above 0.
        kernel: pixels of the kernel's side, odd.
    """
    count, channels, height, width = images.shape
    away = torch.arange(kernel, device=images.device, dtype=images.dtype) - kernel // 2
    weights = torch.exp(-(away**2) / (2 * sigma[:, None] ** 2))  # (N, K)
    weights = weights / weights.sum(dim=1, keepdim=True)
    each = weights.repeat_interleave(channels, dim=0)[:, None]  # (N C, 1, K)
    edge = kernel // 2
    x = functional.pad(images, (edge,) * 4, mode="reflect").reshape(1, count * channels, height + 2 * edge, -1)
    x = functional.conv2d(x, each[:, :, :, None], groups=count * channels)
    x = functional.conv2d(x, each[:, :, None, :], groups=count * channels)
    return x.reshape(count, channels, height, width)


def noised(images: Tensor, noise: Tensor, level: Tensor) -> Tensor:
    """Return sqrt(1 - l²) x + l ε: images or embeddings (N, ...) with a fraction l of noise in each, (N,), 0 to 1."""
    fraction = level.reshape(-1, *(1,) * (images.ndim - 1))
    return (1 - fraction**2).sqrt() * images + fraction * noise
