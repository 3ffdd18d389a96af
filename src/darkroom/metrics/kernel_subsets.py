"""KID as it is published: the kernel distance of random subsets, their mean and spread.

Source: Bińkowski et al., "Demystifying MMD GANs", 2018. The spread is not a standard error: it follows from the size of
the subsets. For a comparison with published values alone; `kernel.py` takes every pair once.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.kernel import cubic

SUBSETS, SIZE, SEED = 100, 1000, 2020  # torch-fidelity's; clean-fid and the authors take as many


class Subsets(NamedTuple):
    """The mean over the subsets, and their standard deviation, which is none of the mean."""

    mean: float
    spread: float


def kernel_subsets(
    features: Tensor, reference: Tensor, subsets: int = SUBSETS, size: int = SIZE, seed: int = SEED
) -> Subsets:
    """Return the kernel distance as torch-fidelity takes it, from the subsets that it draws for `seed`.

    Args:
        features: of generated images, (n, D) float32.
        reference: of real images, (m, D) float32.
        subsets: how many are drawn, each without repetition.
        size: images in a subset, of either set.
        seed: of NumPy's RandomState, whose numbers stay the same between releases.

    Raises:
        DarkroomError: fewer images than a subset has.
    """
    if min(len(features), len(reference)) < size:
        raise DarkroomError(
            f"subsets of {size} images cannot be drawn from {len(features)} generated and {len(reference)} real ones: "
            "score more images."
        )
    draw = np.random.RandomState(seed)
    values = []
    for _ in range(subsets):
        x, y = (rows[torch.from_numpy(draw.choice(len(rows), size, replace=False))] for rows in (features, reference))
        x, y = x.double(), y.double()
        xx, yy = cubic(x, x), cubic(y, y)
        same = (xx.sum() - xx.trace() + yy.sum() - yy.trace()) / (size * (size - 1))
        values.append(float(same - 2 * cubic(x, y).mean()))
    return Subsets(float(np.mean(values)), float(np.std(values)))
