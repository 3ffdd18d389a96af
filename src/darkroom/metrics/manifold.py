"""Precision and recall, density and coverage: whether samples lie among real images, and real images among samples.

Each set is widened to balls: B_k(x), around a feature x, reaches to its k-th neighbour in the set.

precision = fraction of samples in some B₃(real),   recall = fraction of real images in some B₃(sample)
density = 1/k of the mean number of B₅(real) that a sample lies in,   coverage = fraction of B₅(real) with a sample

Source: Kynkäänniemi et al., "Improved precision and recall metric for assessing generative models", 2019, arXiv
1904.06991, k = 3; Naeem et al., "Reliable fidelity and diversity metrics for generative models", 2020, arXiv
2002.09797, k = 5. Precision and recall include the border of a ball, density and coverage exclude it, as published.
All depend on the sizes of both sets: compare at equal sizes.

Distances between features are taken tile by tile. Memory: a tile is (1,024, 8,192) float64, 64 MB, whatever the number
of images, plus both sets in float64, 8 N D bytes (820 MB for 50,000 images of 2,048 features). Time: 2 N M D
operations a pass.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.moments import require_finite
from darkroom.metrics.uncertainty import mean_and_error, weighted_mean_and_error

NEAREST, NEAREST_DENSITY = 3, 5
LEAST = NEAREST_DENSITY + 1  # images in a set
_BORDER = 1e-10  # relative rounding error of a squared distance: a copy of a neighbour lies on the border


def manifold(features: Tensor, reference: Tensor, weights: Tensor | None = None) -> dict[str, float]:
    """Return `precision`, `recall`, `density` and `coverage` with their standard errors.

    Args:
        features: of generated images, (N, D), any float dtype.
        reference: of real images, (M, D).
        weights: of real images in recall and coverage, (M,) of sum 1; None: equal weights.

    Raises:
        DarkroomError: fewer images than neighbours, different lengths, values that are not finite.
    """
    real, fake = centred(reference, features)
    real_squares, _ = nearest(real, real, NEAREST_DENSITY, same=True)
    fake_radius = nearest(fake, fake, NEAREST, same=True)[0][:, -1] * (1 + _BORDER)
    real_radius, density_radius = real_squares[:, NEAREST - 1] * (1 + _BORDER), real_squares[:, -1] * (1 - _BORDER)
    precise = torch.zeros(len(fake), dtype=torch.bool)
    recalled, covered = torch.zeros(len(real), dtype=torch.bool), torch.zeros(len(real), dtype=torch.bool)
    balls = torch.zeros(len(fake), dtype=torch.float64)
    for across, down, squares in tiles(fake, real):
        precise[across] |= (squares <= real_radius[down]).any(1)
        recalled[down] |= (squares <= fake_radius[across, None]).any(0)
        inside = squares < density_radius[down]
        balls[across] += inside.sum(1)
        covered[down] |= inside.any(0)
    return {
        **mean_and_error("precision", precise.double().tolist()),
        **weighted_mean_and_error("recall", recalled.double(), weights),
        **mean_and_error("density", (balls / NEAREST_DENSITY).tolist()),
        **weighted_mean_and_error("coverage", covered.double(), weights),
    }


_ROWS, _COLUMNS = 1024, 8192  # of a tile of distances


def centred(features: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return both sets minus the mean of the first, float64: the same distances, with smaller rounding errors.

    Raises:
        DarkroomError: the numbers of features differ, or values are not finite.
    """
    if features.shape[1] != other.shape[1]:
        raise DarkroomError(
            f"features of length {other.shape[1]} cannot be compared with features of length {features.shape[1]}: "
            "both must come from the same extractor."
        )
    for rows in (features, other):
        require_finite(rows)
    mean = features.double().mean(0)
    return features.double() - mean, other.double() - mean


def tiles(rows: Tensor, columns: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield |xᵢ - yⱼ|², float64, tile by tile, with the rows and columns of each, of float64 (N, D) and (M, D)."""
    lengths = columns.square().sum(1)
    for top in range(0, len(rows), _ROWS):
        x = rows[top : top + _ROWS]
        for left in range(0, len(columns), _COLUMNS):
            y = columns[left : left + _COLUMNS]
            squares = torch.addmm(lengths[left : left + _COLUMNS], x, y.T, alpha=-2)
            squares.add_(x.square().sum(1)[:, None]).clamp_(min=0)
            yield slice(top, top + len(x)), slice(left, left + len(y)), squares


def nearest(rows: Tensor, columns: Tensor, k: int, same: bool = False) -> tuple[Tensor, Tensor]:
    """Return the squared distances, ascending, (N, k) float64, to the k nearest of `columns`, and their numbers (N, k).

    Rows (N, D) and columns (M, D) are float64. With `same` both are one set, and a row is not its own neighbour.

    Raises:
        DarkroomError: too few columns.
    """
    if len(columns) < k + same:
        raise DarkroomError(f"{len(columns) - same} images are too few to find {k} nearest neighbours: use more.")
    best = torch.full((len(rows), k), torch.inf, dtype=torch.float64)
    which = torch.zeros(len(rows), k, dtype=torch.int64)
    for across, down, squares in tiles(rows, columns):
        if same:
            first = max(across.start, down.start)
            own = torch.arange(first, max(first, min(across.stop, down.stop)))
            squares[own - across.start, own - down.start] = torch.inf
        closest, at = squares.topk(min(k, squares.shape[1]), dim=1, largest=False)
        values = torch.cat([best[across], closest], dim=1)
        numbers = torch.cat([which[across], at + down.start], dim=1)
        order = values.argsort(dim=1, stable=True)[:, :k]
        best[across], which[across] = values.gather(1, order), numbers.gather(1, order)
    return best, which
