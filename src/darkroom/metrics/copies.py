"""Memorisation: whether generated images lie nearer to training images than held-out real ones do.

- The share of images with d1 / d2 < 1/3, d1 and d2 the distances to the nearest and to the second nearest training
  image: Yoon et al., "Diffusion probabilistic models generalize when they fail to memorize", 2023; Gu et al., "On
  memorization in diffusion models", 2023 (arXiv 2310.02664).
- C_T: Meehan et al., "A non-parametric test to detect data-copying in generative models", 2020, with one cell.
- The gap of a distance: against training images minus against as many held-out ones.

None of them finds all copies, and each has a value that held-out real images get, which stands beside it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.kernel import within
from darkroom.metrics.nearest import Found
from darkroom.metrics.reference import frechet_between
from darkroom.metrics.shares import share_and_error
from darkroom.metrics.uncertainty import assign_blocks, jackknife

RATIO = 1 / 3  # d1 / d2 below which an image counts as a copy


def copied(found: Found, space: str) -> dict[str, float]:
    """Return `copies_SPACE`, the share of images with d1 / d2 below 1/3, and its standard error."""
    share = (found.ratio < RATIO).double().mean().item()
    return share_and_error(f"copies_{space}", share, len(found.nearest))


def data_copying(made: Tensor, real: Tensor) -> float:
    """Return C_T: the Mann-Whitney z of distances to the nearest training image, of made images against real ones.

    z = (U - mn/2) / sqrt(mn/12 ((m + n + 1) - Σ (t³ - t) / ((m + n)(m + n - 1)))), U the number of pairs in which the
    made image lies further away, a tie half a pair, t the sizes of the ties. Near 0 (its deviation is 1) where made and
    real images lie equally near; far below 0 where made ones lie nearer, as copies do; far above 0 where they lie
    further away, as bad images do. It grows with the root of the number of images.

    Args:
        made: distances of m made images, (m,) float64.
        real: of n real images that are not in the train split, (n,) float64.
    """
    m, n = len(made), len(real)
    _, group, sizes = torch.cat([made, real]).unique(return_inverse=True, return_counts=True)
    last = sizes.cumsum(0).double()
    ranks = (last - (sizes - 1) / 2)[group]  # the mean rank of a tie
    wins = ranks[:m].sum() - m * (m + 1) / 2
    ties = (sizes.double() ** 3 - sizes).sum() / ((m + n) * max(1, m + n - 1))
    variance = m * n / 12 * (m + n + 1 - ties)
    return float((wins - m * n / 2) / variance.sqrt()) if variance > 0 else 0.0


def nearer(made: Tensor, real: Tensor) -> float:
    """Return the fraction of pairs in which the made image lies nearer to the training images than the real one.

    A tie is half a pair; 1/2 for images that lie equally near. Arguments as of `data_copying`.
    """
    return ((made[:, None] < real).double() + (made[:, None] == real).double() / 2).mean().item()


Distance = Callable[[Tensor, Tensor], float]  # of features (n, D) from features of a reference (m, D)


def _kernel(made: Tensor, reference: Tensor) -> float:
    mixed = (made.double() @ reference.double().T / made.shape[1] + 1).pow(3).mean()
    return float(within(made) + within(reference) - 2 * mixed)


@dataclass(frozen=True)
class Gap:
    """A difference of two distances, and its standard error."""

    value: float
    se: float


def gap(distance: Distance, made: Tensor, train: Tensor, held_out: Tensor, blocks: int) -> Gap:
    """Return how much nearer (below 0) images lie to training images than to as many held-out ones.

    distance(made, train) - distance(made, held_out). Both references have the same number of images, so the bias of a
    Fréchet distance, which depends on it and on the number of made images, is that of both terms and cancels. The
    error is the root of the sum of three squared jackknife errors: over blocks of made, of training and of held-out
    images; where all three are of one distribution it is up to half too large.

    Args:
        distance: the distance.
        made: features of the images, (n, D) float32.
        train: of training images drawn at random, (m, D) float32.
        held_out: of held-out images, (m, D) float32, in random order.
        blocks: of the jackknife.

    Raises:
        DarkroomError: the references differ in size, or there are fewer than two images a block.
    """
    if len(train) != len(held_out):
        raise DarkroomError(f"{len(train)} training images and {len(held_out)} held-out ones give no gap without bias.")
    if min(len(made), len(train)) < 2 * blocks:
        raise DarkroomError(f"{len(made)} images and {len(train)} others are too few for {blocks} blocks of a gap.")

    def difference(made: Tensor, train: Tensor, held_out: Tensor) -> float:
        return distance(made, train) - distance(made, held_out)

    value = difference(made, train, held_out)
    squares = 0.0
    for place, of in enumerate((made, train, held_out)):
        block = assign_blocks(len(of), blocks)
        sets = [made, train, held_out]
        without = []
        for number in range(blocks):
            sets[place] = of[block != number]
            without.append(difference(*sets))
        squares += (jackknife(value, without).se or 0.0) ** 2
    return Gap(value, math.sqrt(squares))


def gaps(made: Tensor, train: Tensor, held_out: Tensor, blocks: int) -> dict[str, float]:
    """Return `fd_gap`, `kid_gap` and their standard errors; arguments as of `gap`."""
    found: dict[str, float] = {}
    for name, distance in {"fd_gap": frechet_between, "kid_gap": _kernel}.items():
        one = gap(distance, made, train, held_out, blocks)
        found |= {name: one.value, f"{name}_se": one.se}
    return found
