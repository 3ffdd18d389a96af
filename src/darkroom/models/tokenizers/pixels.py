"""Between stored images, uint8, and what networks see: floats in [-1, 1], or in [0, 1]."""

from typing import Literal

import torch
from torch import Tensor

from darkroom.errors import DarkroomError

# What a network sees of a pixel: -1 to 1, or 0 to 1.
Pixels = Literal["signed", "unit"]


def require_shape(images: Tensor, shape: tuple[int, int, int]) -> None:
    """Check that images (N, C, H, W) have the shape (C, H, W) that a tokenizer was made for.

    Raises:
        DarkroomError: they have another.
    """
    if (found := tuple(images.shape[1:])) != shape:
        raise DarkroomError(
            f"the tokenizer was made for images of shape {shape}, and these are {found}: train it on such images "
            "(`dvc repro train_tokenizer`)."
        )


def to_network(images: Tensor, pixels: Pixels = "signed") -> Tensor:
    """Return uint8 images 0..255 as float32, same shape: in [-1, 1], x / 127.5 - 1, or in [0, 1], x / 255."""
    return images.float() / 255 if pixels == "unit" else images.float() / 127.5 - 1


def to_images(values: Tensor, pixels: Pixels = "signed") -> Tensor:
    """Return network outputs as uint8 images, clamped to 0..255, same shape: round((x + 1) * 127.5), or round(x * 255).

    Rounding, not truncation: `to_images(to_network(images))` is `images` for all 256 values.
    """
    scaled = values.float() * 255 if pixels == "unit" else (values.float() + 1) * 127.5
    return scaled.round().clamp(0, 255).to(torch.uint8)
