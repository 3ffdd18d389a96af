"""Match the distribution of classes on both sides of a comparison.

A reference is weighted to the classes requested from a generator: image i of class c has the weight w_i = p_c / n_c,
p_c the requested fraction of c, n_c the number of images of c. Then Σ w = 1, and

    μ = Σ w x        S = (Σ w x xᵀ - μ μᵀ) / (1 - Σ w²)        MMD's real-real term = Σ_{i≠j} w_i w_j k_ij / (1 - Σ w²)

which are the unweighted forms if all weights are equal. 1 / (1 - Σ w²) is the correction of reliability weights
(Galassi et al., GNU Scientific Library manual, "Weighted samples").
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.data.draw import drawn

# Classes as frequent as in the data, equally frequent, or numbers of images by class.
Distribution = str | Mapping[str, int]
FREQUENCY, BALANCED = "frequency", "balanced"
NO_CLASS = -1
_LEAST = 8  # images of each class, at least, whose features are stored, however rare it is


def class_numbers(labels: Sequence[str | None], classes: Sequence[str]) -> Tensor:
    """Return the class number of each image, (N,) int64; -1 for an image of no known class."""
    known = {name: number for number, name in enumerate(classes)}
    return torch.tensor([known.get(label or "", NO_CLASS) for label in labels], dtype=torch.int64)


def count_classes(numbers: Tensor, classes: int) -> Tensor:
    """Return the images of each class, (classes,) int64; those of no class are not counted."""
    return torch.bincount(numbers[numbers >= 0], minlength=classes)


def shares_of(distribution: Distribution, classes: Sequence[str], counts: Tensor) -> Tensor:
    """Return the fraction of each of K classes, (K,) float64 of sum 1, in a distribution.

    `distribution` is balanced, or numbers of images by class; a class without images in `counts` (K,) has 0.
    """
    if isinstance(distribution, str):
        fractions = torch.ones(len(classes), dtype=torch.float64)
    else:
        fractions = torch.tensor([distribution.get(name, 0) for name in classes], dtype=torch.float64)
    fractions = torch.where(counts > 0, fractions, 0)
    return fractions / fractions.sum()


def missing(distribution: Distribution, classes: Sequence[str], counts: Tensor) -> list[str]:
    """Return the requested classes that have no image."""
    requested = classes if isinstance(distribution, str) else [name for name, count in distribution.items() if count]
    present = {name for name, count in zip(classes, counts.tolist(), strict=True) if count}
    return [name for name in requested if name not in present]


def class_weights(numbers: Tensor, shares: Tensor) -> Tensor:
    """Return the weight of each image, (N,) float64 of sum 1: w_i = p_c / n_c; 0 without a class.

    `numbers` (N,) int64: the class of each image, -1: none; `shares` (K,) float64: p_c, of classes that have images.
    """
    counts = count_classes(numbers, len(shares))
    weights = torch.where(counts > 0, shares / counts.clamp(min=1), 0)
    by_image = torch.where(numbers >= 0, weights[numbers.clamp(min=0)], 0)
    return by_image / by_image.sum()


def kept_rows(total: int, most: int, numbers: Tensor | None) -> list[int]:
    """Return the rows of `total` whose features are stored, in order: `most` drawn ones, and at least 8 of each class.

    `numbers` (total,) int64: the class of each image; None: no classes.
    """
    if most >= total:
        return list(range(total))
    mixed = np.array(drawn(total))
    keep = np.arange(total) < most
    if numbers is not None:
        keep |= (_rank(numbers.numpy()[mixed]) < _LEAST) & (numbers.numpy()[mixed] >= 0)
    return sorted(mixed[keep].tolist())


def _rank(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of earlier images of the same class, (N,)."""
    by_class = np.argsort(numbers, kind="stable")
    _, firsts, counts = np.unique(numbers[by_class], return_index=True, return_counts=True)
    rank = np.empty(len(numbers), dtype=np.int64)
    rank[by_class] = np.arange(len(numbers)) - np.repeat(firsts, counts)
    return rank


def alike_rows(numbers: Tensor, requested: Tensor, distribution: Distribution) -> tuple[list[int], bool]:
    """Draw rows of real images, as many as the samples and of the same classes, or fewer where too few exist.

    If a class has too few images, all classes are reduced by the same factor; with `FREQUENCY` any rows are drawn
    instead, whose classes have the same distribution up to chance. If a sample has no class, any rows are drawn.

    Args:
        numbers: class of each real image, (H,) int64, -1: none.
        requested: class of each sample, (N,) int64, -1: none.
        distribution: the requested one.

    Returns:
        the rows, and whether their classes are those of the samples, not random.
    """
    chance = drawn(len(numbers), len(requested)), False
    if not len(requested) or not len(numbers) or (requested < 0).any():
        return chance
    classes = int(max(requested.max(), numbers.max())) + 1
    available, needed = (count_classes(each, classes).double() for each in (numbers, requested))
    fraction = min(1.0, float((available / needed)[needed > 0].min()))
    if fraction < 1 and distribution == FREQUENCY:
        return chance
    quota = _whole(needed * fraction)
    mixed = np.array(drawn(len(numbers)), dtype=np.int64)
    of_rows = numbers.numpy()[mixed]
    keep = (of_rows >= 0) & (_rank(of_rows) < quota.numpy()[np.maximum(of_rows, 0)])
    return mixed[keep].tolist(), True


def _whole(counts: Tensor) -> Tensor:
    """Return counts (K,) float64 rounded so that their sum is its whole part: by the largest remainder."""
    counts = counts + 1e-9  # a whole number times a fraction falls short of it
    low = counts.floor()
    more = int(counts.sum().floor() - low.sum())
    low[torch.argsort(counts - low, descending=True, stable=True)[:more]] += 1
    return low
