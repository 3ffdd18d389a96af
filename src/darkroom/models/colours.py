"""Images as the RGB that published networks take."""

import torch
from torch import Tensor

from darkroom.errors import DarkroomError


def to_rgb(images: Tensor) -> Tensor:
    """Return uint8 images (N, C, H, W) as RGB (N, 3, H, W).

    Grey (C = 1) is repeated; RGBA (C = 4) is composited over white, rounded to nearest: (a·v + (255 - a)·255) / 255.

    Raises:
        DarkroomError: the images are not uint8, or have another number of channels.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3, 4):
        raise DarkroomError(
            f"an RGB network needs uint8 images with 1, 3 or 4 channels, not {images.dtype} {tuple(images.shape)}."
        )
    if images.shape[1] == 1:
        return images.expand(-1, 3, -1, -1)
    if images.shape[1] == 4:
        colour, alpha = images[:, :3].int(), images[:, 3:].int()
        return ((alpha * colour + (255 - alpha) * 255 + 127) // 255).to(torch.uint8)
    return images
