"""Grids of images, for people to look at."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.artifacts.atomic import write_bytes
from darkroom.data.images import encode, to_pil
from darkroom.errors import DarkroomError

_BACKGROUND = 255


def image_grid(images: NDArray[np.uint8], columns: int, padding: int = 2, scale: int = 1) -> Image.Image:
    """Return images side by side, `columns` in a row, white between and around them.

    Args:
        images: uint8 (N, C, H, W) with C of 1, 3 or 4; N need not fill the last row.
        columns: images in a row.
        padding: pixels between and around the images, after scaling.
        scale: every pixel becomes a square of scale x scale pixels.

    Returns:
        an image of width columns * (scale * W + padding) + padding, mode L, RGB or RGBA.

    Raises:
        DarkroomError: there is no image, or `images` is not as said.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or not len(images):
        raise DarkroomError(f"a grid needs images, uint8 (N, C, H, W), not {images.dtype} {images.shape}.")
    large = images.repeat(scale, axis=2).repeat(scale, axis=3)
    count, channels, height, width = large.shape
    rows = -(-count // columns)
    size = (rows * (height + padding) + padding, columns * (width + padding) + padding)
    canvas = np.full((channels, *size), _BACKGROUND, dtype=np.uint8)
    for number, image in enumerate(large):
        top = padding + number // columns * (height + padding)
        left = padding + number % columns * (width + padding)
        canvas[:, top : top + height, left : left + width] = image
    return to_pil(canvas)


def save_png(path: Path, image: Image.Image) -> None:
    """Write an image as PNG, whole or not at all; equal pixels give equal bytes."""
    write_bytes(path, encode(image, "png"))
