"""Precision and recall, density and coverage: whether samples lie among real images, and real images among samples.

A set is widened to the balls around its features that reach to their k-th neighbours in the set, B_k(x).

precision = share of samples in some B₃(real),   recall = share of real images in some B₃(sample)
density = 1/k of the mean number of B₅(real) that a sample lies in,   coverage = share of B₅(real) with a sample in it

Source: Kynkäänniemi et al., "Improved precision and recall metric for assessing generative models", 2019, arXiv
1904.06991, k = 3; Naeem et al., "Reliable fidelity and diversity metrics for generative models", 2020, arXiv
2002.09797, k = 5. Precision and recall count the border of a ball, density and coverage do not, as their authors do.
They depend on the numbers of both sets: compare at equal ones.
"""

import torch
from torch import Tensor

from darkroom.metrics.neighbours import centred, nearest, tiles
from darkroom.metrics.uncertainty import mean_and_error, weighted_mean_and_error

NEAREST, NEAREST_DENSITY = 3, 5
LEAST = NEAREST_DENSITY + 1  # images in a set
_BORDER = 1e-10  # relative: what rounding does to a squared distance, so that a copy of a neighbour lies on the border


def manifold(
    features: Tensor,
    reference: Tensor,
    k: int = NEAREST,
    k_density: int = NEAREST_DENSITY,
    weights: Tensor | None = None,
) -> dict[str, float]:
    """Return `precision`, `recall`, `density` and `coverage` with their standard errors.

    Args:
        features: of generated images, (N, D), any float dtype.
        reference: of real images, (M, D).
        k: neighbours of precision and recall.
        k_density: neighbours of density and coverage.
        weights: of real images in recall and coverage, (M,) of sum 1; None: all have the same.

    Raises:
        DarkroomError: fewer images than neighbours, other lengths, values that are not finite.
    """
    real, fake = centred(reference, features)
    real_squares, _ = nearest(real, real, max(k, k_density), same=True)
    fake_radius = nearest(fake, fake, k, same=True)[0][:, k - 1] * (1 + _BORDER)
    real_radius, density_radius = real_squares[:, k - 1] * (1 + _BORDER), real_squares[:, k_density - 1] * (1 - _BORDER)
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
        **mean_and_error("density", (balls / k_density).tolist()),
        **weighted_mean_and_error("coverage", covered.double(), weights),
    }
