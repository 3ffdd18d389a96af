"""Colours and transparency of images as tensors. Images of 1 or 3 channels pass unchanged.

Stored RGBA is not premultiplied. Networks that are trained on the images see premultiplied colours, so hidden colours
have no effect; published networks and scores of pixels see RGB on white, as `ingest` stores it with `channels: RGB`.
"""

import torch
from torch import Tensor

from darkroom.errors import DarkroomError

# Decoded alpha within SNAP levels of 0 or 255 becomes 0 or 255. The output of a network is never exactly 0, so without
# it a transparent background would be a faint veil. Alpha of 1 to SNAP in the data is lost.
SNAP = 16


def card_entry(channels: int) -> dict[str, dict[str, str]]:
    """Return the entry of a card's protocol on transparency; empty unless the images have four channels."""
    facts = {
        "in_domain": "premultiplied RGBA",
        "other extractors, LPIPS, PSNR, SSIM": "RGB on white",
        "decoding": f"alpha within {SNAP} levels of 0 or 255 is snapped to it",
    }
    return {"transparency": facts} if channels == 4 else {}


def is_rgba(images: Tensor) -> bool:
    """Return whether images are (N, 4, H, W)."""
    return images.ndim == 4 and images.shape[1] == 4


def premultiplied(images: Tensor) -> Tensor:
    """Return uint8 images 0..255 as float32, same shape; colours of RGBA become a·v, alpha a from 0 to 1."""
    pixels = images.float()
    return torch.cat([pixels[:, :3] * pixels[:, 3:] / 255, pixels[:, 3:]], dim=1) if is_rgba(pixels) else pixels


def unmultiplied(pixels: Tensor) -> Tensor:
    """Return colours v of premultiplied RGBA pixels a·v from 0 to 255, float32 (N, 4, H, W), in the same range.

    Alpha is rounded to whole levels, and snapped within `SNAP` of 0 and 255; colours are clipped to it: a·v ≤ a. Where
    alpha is 0 they are 0.
    """
    if not is_rgba(pixels):
        return pixels
    alpha = pixels[:, 3:].round().clamp(0, 255)
    alpha = alpha.where(alpha > SNAP, 0.0).where(alpha < 255 - SNAP, 255.0)
    return torch.cat([pixels[:, :3].clamp(min=0).minimum(alpha) * 255 / alpha.clamp(min=1), alpha], dim=1)


def composited(images: Tensor) -> Tensor:
    """Return uint8 RGBA images (N, 4, H, W) on white, (N, 3, H, W), rounded to nearest: (a·v + (255 - a)·255) / 255."""
    if not is_rgba(images):
        return images
    colour, alpha = images[:, :3].int(), images[:, 3:].int()
    return ((alpha * colour + (255 - alpha) * 255 + 127) // 255).to(torch.uint8)


def to_rgb(images: Tensor) -> Tensor:
    """Return uint8 images (N, C, H, W) as RGB (N, 3, H, W): grey (C = 1) is repeated, RGBA (C = 4) `composited`.

    Raises:
        DarkroomError: the images are not uint8, or have another number of channels.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3, 4):
        raise DarkroomError(
            f"an RGB network needs uint8 images with 1, 3 or 4 channels, not {images.dtype} {tuple(images.shape)}."
        )
    return images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else composited(images)
