"""Images as CLIP's network sees them: in its size and colours, with OpenAI's mean and deviation."""

import torch
from torch import Tensor
from torch.nn import functional

from darkroom.errors import DarkroomError

# Of each channel, over the images that OpenAI's networks were trained on; theirs and ours alike.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


def to_rgb(images: Tensor) -> Tensor:
    """Return uint8 images (N, C, H, W) as RGB (N, 3, H, W): grey is repeated, RGBA is laid over white.

    Raises:
        DarkroomError: not uint8, no squares, or not 1, 3 or 4 channels.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3, 4):
        raise DarkroomError(
            f"CLIP takes uint8 images of 1, 3 or 4 channels, not {images.dtype} of shape {tuple(images.shape)}."
        )
    if images.shape[2] != images.shape[3]:
        raise DarkroomError(f"CLIP takes squares, and not images of shape {tuple(images.shape)}: crop them first.")
    if images.shape[1] == 1:
        return images.expand(-1, 3, -1, -1)
    if images.shape[1] == 4:
        colour, alpha = images[:, :3].int(), images[:, 3:].int()
        return ((alpha * colour + (255 - alpha) * 255 + 127) // 255).to(torch.uint8)
    return images


def resized(images: Tensor, size: int) -> Tensor:
    """Return uint8 squares (N, 3, H, H) in `size` pixels a side, float32, whole numbers from 0 to 255.

    Bicubic, with a filter that grows with the reduction, first in width and then in height, and rounded after each, as
    Pillow does it; its coefficients are whole numbers, so that one grey level may differ.
    """
    x = images.float()
    for shape in ((x.shape[2], size), (size, size)) if x.shape[2] != size else ():
        x = functional.interpolate(x, size=shape, mode="bicubic", antialias=True, align_corners=False)
        x = x.round().clamp(0, 255)
    return x


def preprocessed(images: Tensor, size: int) -> Tensor:
    """Return uint8 images (N, C, H, H) as the network's input, float32 (N, 3, size, size).

    What `clip.load` returns beside the network, on tensors. Raises: see `to_rgb`.
    """
    x = resized(to_rgb(images), size).div_(255)  # its own, so in place: a third of the time
    mean, std = (torch.tensor(values, device=x.device)[:, None, None] for values in (MEAN, STD))
    return x.sub_(mean).div_(std)
