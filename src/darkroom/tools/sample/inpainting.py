"""Fill a rectangle of an image with a generator of masked codes, or all that lies outside of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.data.images import ImageSpec
from darkroom.errors import DarkroomError
from darkroom.tools.images import preparation, read_image
from darkroom.tools.sample.hole import Hole


@dataclass(frozen=True)
class Filled:
    """An image and its hole.

    image: uint8 (C, H, W). hole: where it is filled, bool (H, W).
    """

    image: NDArray[np.uint8]
    hole: NDArray[np.bool_]

    def __call__(self, generated: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return generated images (N, C, H, W) with the pixels of the image outside of the hole."""
        return np.where(self.hole, generated, self.image)


def filling(hole: Hole, sampler: Any, manifest: Mapping[str, Any]) -> Filled:
    """Give the codes of an image outside of a hole to a `MaskedSampler`, and return the image.

    A code is drawn if its part of the image touches the hole. A part has a whole number of pixels a side, and the last
    one may lie partly outside of the image; where several numbers are possible, all count.

    Raises:
        DarkroomError: the file cannot be read, or the rectangle is empty or not inside the image.
    """
    spec = ImageSpec.of(manifest)
    _, height, width = spec.shape
    left, top, right, bottom = hole.box
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise DarkroomError(
            f"--box {','.join(map(str, hole.box))} is not a rectangle inside the image: use LEFT,TOP,RIGHT,BOTTOM in "
            f"pixels, at most {width},{height}."
        )
    image = read_image(hole.file, preparation(spec))
    where = np.full((height, width), hole.outside)
    where[top:bottom, left:right] = not hole.outside
    codes = sampler.tokenizer.encode_codes(torch.from_numpy(image)[None].to(sampler.device))[0]
    touched = np.zeros(codes.shape, dtype=bool)
    for factor in (pixels for pixels in range(1, height + 1) if -(-height // pixels) == len(codes)):
        rows, columns = (np.arange(size) // factor for size in (height, width))
        np.logical_or.at(touched, (rows[:, None], columns[None]), where)
    sampler.known = codes.masked_fill(torch.from_numpy(touched).to(codes.device), -1)
    return Filled(image, where)
