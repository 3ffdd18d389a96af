"""LPIPS diversity: how different two samples of one class are.

Mean of LPIPS(xᵢ, xⱼ) over pairs i ≠ j of one class, drawn by a seed. Source: Zhu et al., "Toward multimodal
image-to-image translation", 2017, arXiv 1711.11586. Beside it stands that of real images: neither higher nor lower is
better by itself, but far below real images a model repeats itself.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.uncertainty import mean_and_error
from darkroom.random import generator


def pairs(labels: Sequence[str | None], most: int, seed: int) -> NDArray[np.int64]:
    """Return pairs (P, 2) of different images of one class, P at most `most`, no image in two pairs.

    Images of no class (None) pair with each other. Each class has pairs in proportion to its images.

    Raises:
        DarkroomError: no class has two images.
    """
    mixed = generator(seed, "diversity").permutation(len(labels))
    waiting: dict[str | None, int] = {}
    found: list[tuple[int, int]] = []
    for image in mixed.tolist():
        other = waiting.pop(labels[image], None)
        if other is None:
            waiting[labels[image]] = image
        else:
            found.append((other, image))
        if len(found) == most:
            break
    if not found:
        raise DarkroomError("no class has two images, and a diversity needs pairs: score more images.")
    return np.array(found, dtype=np.int64)


def diversity(
    measure: Callable[[Tensor, Tensor], Tensor],
    images: Callable[[NDArray[np.int64]], Tensor],
    chosen: NDArray[np.int64],
) -> dict[str, float]:
    """Return `lpips_diversity` and its standard error.

    Args:
        measure: from two batches of uint8 images (N, C, H, W) to their distances (N,), as `perceptual_measure` returns.
        images: from numbers of images (N,) to these, uint8 (N, C, H, W).
        chosen: from `pairs`.
    """
    step = 32
    values: list[float] = []
    for first in range(0, len(chosen), step):
        some = chosen[first : first + step]
        values += measure(images(some[:, 0]), images(some[:, 1])).tolist()
    return mean_and_error("lpips_diversity", values)
