"""Between stored images, uint8, and what networks see, floats in [-1, 1]."""

import torch
from torch import Tensor


def to_network(images: Tensor) -> Tensor:
    """Return uint8 images 0..255 as float32 in [-1, 1], same shape: x / 127.5 - 1."""
    return images.float() / 127.5 - 1


def to_images(values: Tensor) -> Tensor:
    """Return network outputs as uint8 images: round((x + 1) * 127.5), clamped to 0..255, same shape.

    Rounding, not truncation: `to_images(to_network(images))` is `images` for all 256 values.
    """
    return ((values.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
