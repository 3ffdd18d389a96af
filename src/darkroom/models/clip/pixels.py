"""The input of CLIP's image network: its size and colours, with OpenAI's mean and standard deviation."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from darkroom.device import to_device
from darkroom.errors import DarkroomError
from darkroom.models.colours import to_rgb

# Mean and standard deviation of each channel over OpenAI's training images, used for all networks.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


def resized(images: Tensor, size: int, interpolation: str = "bicubic") -> Tensor:
    """Return uint8 images (N, 3, H, H) resized to (N, 3, size, size), float32, whole numbers from 0 to 255.

    Bicubic, or bilinear, and antialiased, first in width and then in height, rounded after each, as in Pillow. Pillow's
    coefficients are fixed-point numbers, so that results differ from it by at most one grey level.
    """
    x = images.float()
    for shape in ((x.shape[2], size), (size, size)) if x.shape[2] != size else ():
        x = functional.interpolate(x, size=shape, mode=interpolation, antialias=True, align_corners=False)
        x = x.round().clamp(0, 255)
    return x


@dataclass(frozen=True)
class Preprocessing:
    """From images to a network's input.

    size: pixels, height and width.
    mean, std: of each channel, of values from 0 to 1.
    interpolation: bicubic or bilinear.
    """

    size: int
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD
    interpolation: str = "bicubic"

    def __call__(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, H) as the network's input, float32 (N, 3, size, size).

        The transform that `clip.load` returns beside the network, on tensors. Grey and RGBA: see `to_rgb`.

        Raises:
            DarkroomError: the images are not uint8, not square, or do not have 1, 3 or 4 channels.
        """
        if images.shape[-2] != images.shape[-1]:
            raise DarkroomError(f"CLIP takes squares, and not images of shape {tuple(images.shape)}: crop them first.")
        x = resized(to_rgb(images), self.size, self.interpolation).div_(255)  # in place: a third of the time
        mean, std = (to_device(torch.tensor(values), x.device)[:, None, None] for values in (self.mean, self.std))
        return x.sub_(mean).div_(std)


def preprocessed(images: Tensor, size: int) -> Tensor:
    """Return images as the input of OpenAI's networks: see `Preprocessing`."""
    return Preprocessing(size)(images)
