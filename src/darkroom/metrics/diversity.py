"""Diversity: how different two samples of one class are, in a perceptual distance d.

Mean of d(xᵢ, xⱼ) over pairs i ≠ j of one class, drawn by a seed; each image is in one pair at most, so pairs are
independent. Source: Zhu et al., "Toward multimodal image-to-image translation", 2017, arXiv 1711.11586; d is LPIPS.
Beside it stands that of real images: neither higher nor lower is better by itself, but far below real images a model
repeats itself, and far above them its images are spoiled, for noise differs too.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.rng import generator

SEED = 0  # of the pairs
_STEP = 32  # pairs in a forward pass

Labels = Sequence[str | None]
Pairs = NDArray[np.int64]


def pairs(labels: Labels, most: int, seed: int = SEED) -> Pairs:
    """Return drawn pairs (P, 2) of different images of one class, P at most `most`, no image in two pairs.

    Images of no class (None) pair with each other. Each class has pairs in proportion to its images; without a class of
    two images there is no pair.
    """
    mixed = generator(seed, "diversity").permutation(len(labels))
    waiting: dict[str | None, int] = {}
    found: list[tuple[int, int]] = []
    for image in mixed.tolist():
        if len(found) == most:
            break
        other = waiting.pop(labels[image], None)
        if other is None:
            waiting[labels[image]] = image
        else:
            found.append((other, image))
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def alike_pairs(labels: Labels, wanted: Labels, seed: int = SEED) -> tuple[Pairs, Tensor]:
    """Return pairs of real images with the classes of other pairs, and what each pair counts.

    Args:
        labels: the class of each real image, (H,).
        wanted: the class of each of the other pairs, (P,).
        seed: of the draw.

    Returns:
        pairs (M, 2), of a class as many as are wanted or as there are; weights (M,) float64 of sum 1: each class counts
        as often as it is wanted, and a class without a pair is left out.
    """
    asked, taken = Counter(wanted), Counter[str | None]()
    kept = []
    for pair in pairs(labels, len(labels), seed):
        name = labels[pair[0]]
        if taken[name] < asked[name]:
            taken[name] += 1
            kept.append(pair)
    found = np.array(kept, dtype=np.int64).reshape(-1, 2)
    weights = torch.tensor([asked[name] / taken[name] for name in classes_of(labels, found)], dtype=torch.float64)
    return found, weights / weights.sum()


def classes_of(labels: Labels, chosen: Pairs) -> list[str | None]:
    """Return the class of each pair."""
    return [labels[row] for row in chosen[:, 0].tolist()]


def distances_of(
    measure: Callable[[Tensor, Tensor], Tensor], images: Callable[[Sequence[int]], NDArray[np.uint8]], chosen: Pairs
) -> Iterator[Tensor]:
    """Yield the distances of pairs of images, (n,) float64, some at a time.

    Args:
        measure: d, from two batches of uint8 images (n, C, H, W) to their distances (n,).
        images: from rows to images, uint8 (n, C, H, W).
        chosen: pairs of rows, (P, 2).
    """
    for first in range(0, len(chosen), _STEP):
        some = chosen[first : first + _STEP]
        one, other = (torch.from_numpy(images(some[:, side].tolist())) for side in (0, 1))
        yield measure(one, other)
