"""Fréchet distance between Gaussians fitted to features.

d²(1, 2) = |μ₁ - μ₂|² + tr(S₁ + S₂ - 2 (S₁^½ S₂ S₁^½)^½)

Source: Dowson and Landau, "The Fréchet distance between multivariate normal distributions", 1982; Heusel et al., "GANs
trained by a two time-scale update rule converge to a local Nash equilibrium", 2017 (FID). The inner matrix is
symmetric, so its eigenvalues are real and `eigh` finds them: exact, and it needs no general matrix root.

For N samples, N below the number of features D, S₂ = ZᵀZ with the N rows of Z = (Y - μ₂) / √(N - 1), and the cross
term is the sum of the N singular values of Z S₁^½ (for two such sets, of Z₂ Z₁ᵀ): exact too, whereas the eigenvalues of
a (D, D) matrix are mostly rounding, and much faster.
"""

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.moments import BlockSums, Moments, block_sums, require_finite
from darkroom.metrics.uncertainty import Jackknife, jackknife, left_out


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


def require_length(length: int, expected: int) -> None:
    """Raise DarkroomError unless samples have as many features as their reference."""
    if length != expected:
        raise DarkroomError(
            f"features of length {length} cannot be compared with a reference of length {expected}: "
            "both must come from the same extractor; run reference_stats again (`dvc repro`)."
        )


def frechet_distance(reference: Moments, root: Tensor, other: Moments) -> float:
    """Return the (squared) Fréchet distance of `other` from `reference`, whose covariance root is `root`. At least 0.

    Raises:
        DarkroomError: the numbers of features differ.
    """
    require_length(len(other.mean), len(reference.mean))
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
    blocks = left_out(len(sums.count))
    return jackknife(full, [frechet_distance(reference, root, sums.without(block)) for block in blocks])


def _centred(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean (D,) of rows (N, D), and Z = (rows - mean) / √(N - 1), so that their covariance is ZᵀZ."""
    if len(rows) < 2:
        raise DarkroomError(f"a covariance needs at least 2 samples, not {len(rows)}: score more images.")
    mean = rows.mean(0)
    return mean, (rows - mean) / (len(rows) - 1) ** 0.5


def _nuclear(matrix: Tensor) -> Tensor:
    """Return the sum of the singular values of a matrix (A, B), from the triangle of its QR decomposition."""
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    return torch.linalg.svdvals(torch.linalg.qr(tall, mode="r").R).sum()


def frechet_of_two(features: Tensor, others: Tensor) -> float:
    """Return the Fréchet distance of two sets of samples, (N, D) and (M, D), N and M meant to be below D. At least 0.

    Raises:
        DarkroomError: another number of features, or fewer than 2 samples in a set.
    """
    require_length(others.shape[1], features.shape[1])
    (mean, rows), (other_mean, other_rows) = _centred(features.double()), _centred(others.double())
    spread = rows.square().sum() + other_rows.square().sum()
    means = (mean - other_mean).square().sum()
    return max(0.0, float(means + spread - 2 * _nuclear(rows @ other_rows.T)))


def few_jackknife(reference: Moments, root: Tensor, features: Tensor, block: Tensor) -> Jackknife:
    """Return the result of `frechet_jackknife`, in the small form, for features (N, D) in blocks (N,) int64.

    The product with the root, (N, D), is computed once: a distance without a block costs only its singular values.
    """
    require_length(features.shape[1], len(reference.mean))
    require_finite(features)
    samples = features.double()
    turned = samples @ root  # (N, D); centring commutes with the product

    def distance(keep: Tensor) -> float:
        mean, rows = _centred(samples[keep])
        means, cross = (reference.mean - mean).square().sum(), _nuclear(_centred(turned[keep])[1])
        return max(0.0, float(means + reference.cov.trace() + rows.square().sum() - 2 * cross))

    every = torch.ones(len(samples), dtype=torch.bool)
    return jackknife(distance(every), [distance(block != index) for index in left_out(len(block.unique()))])


def jackknifed(reference: Moments, root: Tensor, features: Tensor, block: Tensor) -> Jackknife:
    """Return the Fréchet distance of features (N, D) in blocks (N,) int64, debiased and with its error.

    In the small form where N is at most D. `root` is `covariance_root` of the reference's covariance.

    Raises:
        DarkroomError: another number of features, fewer than 2 samples outside a block, values that are not finite.
    """
    if len(features) <= features.shape[1]:
        return few_jackknife(reference, root, features, block)
    return frechet_jackknife(reference, root, block_sums(features, block))


def frechet_scores(name: str, reference: Moments, root: Tensor, features: Tensor, block: Tensor) -> dict[str, float]:
    """Return the result of `jackknifed` under the names of a metrics file: NAME, NAME_debiased, NAME_se."""
    distance = jackknifed(reference, root, features, block)
    debiased = {} if distance.debiased is None else {f"{name}_debiased": distance.debiased}
    return {name: distance.value, **debiased, **distance.named(name)}
