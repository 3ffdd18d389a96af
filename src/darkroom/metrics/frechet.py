"""Fréchet distance between Gaussians fitted to features.

d²(1, 2) = |μ₁ - μ₂|² + tr(S₁ + S₂ - 2 (S₁^½ S₂ S₁^½)^½)

Source: Dowson and Landau, "The Fréchet distance between multivariate normal distributions", 1982; Heusel et al., "GANs
trained by a two time-scale update rule converge to a local Nash equilibrium", 2017 (FID). The inner matrix is
symmetric, so its eigenvalues are real and `eigh` finds them: exact, and it needs no general matrix root.
"""

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.moments import BlockSums, Moments
from darkroom.metrics.uncertainty import Jackknife, jackknife


def _spectrum(values: Tensor) -> Tensor:
    """Return the roots of eigenvalues, those within rounding of zero as 0.

    With fewer samples than features most eigenvalues are zero, come out as ±1e-16 of the largest, and their roots, 1e-8
    each, would add up.
    """
    floor = len(values) * torch.finfo(values.dtype).eps * values[-1].clamp(min=0)
    return torch.where(values > floor, values, 0).sqrt()


def covariance_root(cov: Tensor) -> Tensor:
    """Return the symmetric root S^½ of a covariance, (D, D) float64: computed once for a reference, then reused."""
    values, vectors = torch.linalg.eigh(cov.double())
    return (vectors * _spectrum(values)) @ vectors.T


def frechet_distance(reference: Moments, root: Tensor, other: Moments) -> float:
    """Return the (squared) Fréchet distance of `other` from `reference`, whose covariance root is `root`. At least 0.

    Raises:
        DarkroomError: another number of features.
    """
    if reference.mean.shape != other.mean.shape:
        raise DarkroomError(
            f"features of length {len(other.mean)} do not compare with a reference of length {len(reference.mean)}: "
            "both must come from one extractor; run reference_stats again (`dvc repro`)."
        )
    inner = root @ other.cov @ root
    # tr (S₁^½ S₂ S₁^½)^½ is the sum of the roots of the eigenvalues.
    cross = _spectrum(torch.linalg.eigvalsh((inner + inner.T) / 2)).sum()
    means = (reference.mean - other.mean).square().sum()
    distance = means + reference.cov.trace() + other.cov.trace() - 2 * cross
    return max(0.0, float(distance))


def frechet_jackknife(reference: Moments, root: Tensor, sums: BlockSums) -> Jackknife:
    """Return the Fréchet distance of all samples, debiased and with its error, from the sums of B blocks.

    The plain value is biased by about +c / N and compares only with values at the same N; the debiased one does not.
    """
    full = frechet_distance(reference, root, sums.all())
    blocks = range(len(sums.count))
    return jackknife(full, [frechet_distance(reference, root, sums.without(block)) for block in blocks])
