"""Kernel distances: the unbiased squared maximum mean discrepancy, over all pairs, of any kernel; KID and CMMD.

MMD² = Σ_{i≠j} k(xᵢ, xⱼ) / m(m-1) + Σ_{i≠j} k(yᵢ, yⱼ) / n(n-1) - 2 Σ_{ij} k(xᵢ, yⱼ) / mn,   k(x, y) = (x·y / D + 1)³

Source: Bińkowski et al., "Demystifying MMD GANs", 2018 (KID); Gretton et al., "A kernel two-sample test", 2012. Other
programs average it over random subsets: slower, and their "±" follows from the subset size. Here every pair counts
once, nothing is drawn, and the sums over pairs of blocks give the jackknife without a second pass.

The two sets must hold different images: a reconstruction compared with its own original is more similar than two
independent images, and the value falls below 0.
"""

from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from darkroom.errors import DarkroomError
from darkroom.metrics.frechet import require_length
from darkroom.metrics.uncertainty import Jackknife, assign_blocks, jackknife, left_out

_ROWS = 1024  # of a tile of the kernel matrix: 1024 x 1024 float64 are 8 MB
# From float64 rows (m, D) and (n, D) to the kernel of all pairs, (m, n) float64.
Kernel = Callable[[Tensor, Tensor], Tensor]


def cubic(x: Tensor, y: Tensor) -> Tensor:
    """Return (xᵢ·yⱼ / D + 1)³, (m, n)."""
    tile = (x @ y.T).div_(x.shape[1]).add_(1)
    return tile * tile * tile


Tiles = Callable[[int], Iterator[Tensor]]  # float64 tiles of `_ROWS` rows from a number on, created on demand


def _tiles(features: Tensor, rows: Tensor | None = None) -> Tiles:
    """Return all features (m, D), or those of some rows, as tiles."""
    chunks = (torch.arange(len(features)) if rows is None else rows).split(_ROWS)
    return lambda first: (features[chunk].double() for chunk in chunks[first:])


def _pair_sum(x: Tiles, y: Tiles, kernel: Kernel, weights: Tensor | None = None) -> Tensor:
    """Return Σ_ij wⱼ k(xᵢ, yⱼ), tile by tile, as a float64 scalar; without weights 1."""
    total = torch.zeros((), dtype=torch.float64)
    columns = repeat(None) if weights is None else weights.split(_ROWS)
    for left in x(0):
        for right, own in zip(y(0), columns, strict=False):
            tile = kernel(left, right)
            total += (tile.sum() if own is None else tile.sum(0) @ own.to(tile)).cpu()
    return total


def _self_sum(x: Tiles, kernel: Kernel) -> Tensor:
    """Return Σ_{i≠j} k(xᵢ, xⱼ): each pair of tiles once, the diagonal taken off tile by tile."""
    total = torch.zeros((), dtype=torch.float64)
    for number, tile in enumerate(x(0)):
        same = kernel(tile, tile)
        total += (same.sum() - same.trace()).cpu()
        for other in x(number + 1):
            total += 2 * kernel(tile, other).sum().cpu()
    return total


def within(features: Tensor, kernel: Kernel = cubic, weights: Tensor | None = None) -> float:
    """Return Σ_{i≠j} k(xᵢ, xⱼ) / m(m-1) of features (m, D) float32, m at least 2: a reference's term, stored with it.

    With weights (m,) float64 of sum 1: Σ_{i≠j} wᵢ wⱼ k(xᵢ, xⱼ) / (1 - Σ w²).
    """
    if len(features) < 2:
        raise DarkroomError(f"a kernel distance needs at least 2 reference images, not {len(features)}.")
    if weights is None:
        return float(_self_sum(_tiles(features), kernel)) / (len(features) * (len(features) - 1))
    total = torch.zeros((), dtype=torch.float64)
    for rows, own in zip(features.split(_ROWS), weights.split(_ROWS), strict=True):
        exact = rows.double()
        total -= (own.square() * kernel(exact, exact).diagonal().cpu()).sum()
        for others, theirs in zip(features.split(_ROWS), weights.split(_ROWS), strict=True):
            total += own @ kernel(exact, others.double()).cpu() @ theirs
    return float(total / (1 - weights.square().sum()))


def kernel_jackknife(
    reference: Tensor,
    reference_within: float,
    features: Tensor,
    block: Tensor,
    kernel: Kernel = cubic,
    weights: Tensor | None = None,
) -> Jackknife:
    """Return the kernel distance with its error over the blocks of the generated images.

    Args:
        reference: features of real images, (m, D) float32.
        reference_within: `within(reference)`, of the same kernel and weights.
        features: of generated images, (n, D) float32.
        block: of each image, (n,) int64, from `assign_blocks`.
        kernel: k.
        weights: of the real images, (m,) float64 of sum 1; None: equal weights.

    Returns:
        The U-statistic (it may be below 0), the same debiased (it has no bias, so nearly equal), its standard error.

    Raises:
        DarkroomError: the numbers of features differ.
    """
    require_length(features.shape[1], reference.shape[1])
    rows = [(block == index).nonzero()[:, 0] for index in range(int(block.max()) + 1)]
    sizes = torch.tensor([len(part) for part in rows], dtype=torch.float64)
    parts, real = [_tiles(features, part) for part in rows], _tiles(reference)
    scale = 1 / len(reference) if weights is None else 1.0
    cross = scale * torch.stack([_pair_sum(part, real, kernel, weights) for part in parts])  # (B,)
    pairs = torch.zeros(len(parts), len(parts), dtype=torch.float64)
    for row, left in enumerate(parts):
        pairs[row, row] = _self_sum(left, kernel)
        for column in range(row):
            pairs[row, column] = pairs[column, row] = _pair_sum(left, parts[column], kernel)

    def distance(keep: Tensor) -> float:
        n = sizes[keep].sum()
        same = pairs[keep][:, keep].sum() / (n * (n - 1))
        mixed = cross[keep].sum() / n
        return float(reference_within + same - 2 * mixed)

    blocks = torch.arange(len(parts))
    return jackknife(distance(blocks >= 0), [distance(blocks != index) for index in left_out(len(parts))])


# ---------------------------------------------------------------------------------------------------------------------
# KID as published

SUBSETS, SIZE, SEED = 100, 1000, 2020  # torch-fidelity's; clean-fid and the authors use the same subsets


def kernel_subsets(
    features: Tensor, reference: Tensor, subsets: int = SUBSETS, size: int = SIZE, seed: int = SEED
) -> tuple[float, float]:
    """Return the mean kernel distance of subsets that torch-fidelity draws for `seed`, and their standard deviation.

    Bińkowski et al., 2018. Only for a comparison with published values: `kernel_jackknife` takes every pair once. The
    deviation is no standard error of the mean: it follows from the size of the subsets, which are drawn without
    repetition from generated and real features, (n, D) and (m, D) float32, by NumPy's RandomState.

    Raises:
        DarkroomError: fewer images than in a subset.
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
    return float(np.mean(values)), float(np.std(values))


# ---------------------------------------------------------------------------------------------------------------------
# CMMD: the maximum mean discrepancy of CLIP's embeddings with a Gaussian kernel

SIGMA, SCALE = 10.0, 1000.0


def gaussian(x: Tensor, y: Tensor) -> Tensor:
    """Return exp(-|xᵢ - yⱼ|² / 2σ²), (m, n), of float64 rows (m, D) and (n, D)."""
    squares = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * (x @ y.T)
    return torch.exp(squares.clamp(min=0) / (-2 * SIGMA**2))


def cmmd(features: Tensor, reference: Tensor, blocks: int, weights: Tensor | None = None) -> dict[str, float]:
    """Return `cmmd` and `cmmd_se` of embeddings of generated and real images, (n, D) and (m, D), of any length.

    k(x, y) = exp(-|x - y|² / 2σ²),  σ = 10,  x and y of length 1,   CMMD = 1000 MMD². Source: Jayasumana et al.,
    "Rethinking FID: towards a better evaluation metric for image generation", 2024, arXiv 2401.09603, equation 4, the
    unbiased estimate. The authors' program keeps the pairs of an image with itself, which adds at most 10 / n + 10 / m:
    less than a thousandth at the 30,000 images of published values.

    `weights` are those of real images, (m,) float64 of sum 1; None: equal weights.

    Raises:
        DarkroomError: see `kernel_jackknife` and `assign_blocks`.
    """
    generated, real = (functional.normalize(rows.double(), dim=1) for rows in (features, reference))
    block = assign_blocks(len(generated), blocks)
    distance = kernel_jackknife(real, within(real, gaussian, weights), generated, block, gaussian, weights)
    return {name: SCALE * value for name, value in distance.named("cmmd").items()}
