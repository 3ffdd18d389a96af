"""Mean and covariance of features as float64 sums, one set for each jackknife block.

Sums grow by addition, batch by batch, and leaving a block out is a subtraction: the whole jackknife of
a Fréchet distance needs one pass over the images and B · (D² + D + 1) numbers, however many images there are. Products
of float32 features are exact in float64, and the sums err by about 1e-10 of a unit variance at a mean of 100, where
float32 sums err by 1e-2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from darkroom.errors import DarkroomError


def require_finite(values: Tensor, name: str = "features") -> None:
    """Check the outputs of a network.

    Raises:
        DarkroomError: a value is not finite.
    """
    if not torch.isfinite(values).all():
        raise DarkroomError(f"{name} hold a value that is not finite: the images or the weights are damaged.")


@dataclass(frozen=True)
class Moments:
    """Number of samples, their mean (D,) and their unbiased covariance (D, D), both float64."""

    count: int
    mean: Tensor
    cov: Tensor


def moments(count: int, total: Tensor, outer: Tensor) -> Moments:
    """Return the moments of n >= 2 samples from their sums: μ = Σx / n,  S = (Σxxᵀ - n μμᵀ) / (n - 1).

    From n, Σx (D,) and Σxxᵀ (D, D), float64, which are not modified.

    Raises:
        DarkroomError: fewer than 2 samples.
    """
    if count < 2:
        raise DarkroomError(
            f"a covariance needs at least 2 samples, not {count}: score more images, or in fewer blocks."
        )
    mean = total / count
    cov = torch.addr(outer, mean, mean, alpha=-float(count)).div_(count - 1)
    # Rounding differs between the triangles by an ulp or so, and eigh reads only one of them.
    return Moments(count, mean, (cov + cov.T).div_(2))


class BlockSums:
    """Sums over B blocks of samples: count (B,), total of x (B, D) and outer of x xᵀ (B, D, D), float64."""

    def __init__(self, count: Tensor, total: Tensor, outer: Tensor) -> None:
        self.count, self.total, self.outer = count, total, outer
        self._count, self._total, self._outer = int(count.sum()), total.sum(0), outer.sum(0)

    def all(self) -> Moments:
        """Return the moments of the samples of all blocks together."""
        return moments(self._count, self._total, self._outer)

    def without(self, block: int) -> Moments:
        """Return the moments of the samples outside one block.

        Raises:
            DarkroomError: the block is empty, or fewer than 2 samples remain.
        """
        count = int(self.count[block])
        if count == 0:
            raise DarkroomError(
                f"block {block} of {len(self.count)} holds no sample: score more images, or in fewer blocks."
            )
        return moments(self._count - count, self._total - self.total[block], self._outer - self.outer[block])


_HELD, _STRIPE = 512, 512  # rows of a block that wait for one product; features in a stripe of it


class BlockMoments:
    """Streaming sums of features (N, D) in B blocks: `count` (B,), `total` (B, D) and `outer` (B, D, D), float64.

    Rows wait until a block has 512 of them, since each product passes over its whole (D, D) matrix; `compute` adds
    the remaining ones.
    """

    def __init__(self, features: int, blocks: int = 1) -> None:
        self.count = torch.zeros(blocks, dtype=torch.float64)
        self.total = torch.zeros(blocks, features, dtype=torch.float64)
        self.outer = torch.zeros(blocks, features, features, dtype=torch.float64)
        self._held: list[list[Tensor]] = [[] for _ in range(blocks)]

    @torch.no_grad()
    def update(self, features: Tensor, block: Tensor) -> None:
        """Add features (N, D), of any float dtype, of samples in blocks (N,) int64, each in [0, B).

        Raises:
            DarkroomError: shapes do not fit, a block does not exist, or features are not finite.
        """
        blocks, width = self.total.shape
        if features.ndim != 2 or features.shape[1] != width or block.shape != features.shape[:1]:
            raise DarkroomError(
                f"features of shape {tuple(features.shape)} in blocks of shape {tuple(block.shape)} do not fit: "
                f"(N, {width}) and (N,) are needed."
            )
        require_finite(features)
        for index in block.unique().tolist():
            if not 0 <= index < blocks:
                raise DarkroomError(f"block {index} does not exist: blocks count from 0 to {blocks - 1}.")
            self._held[index].append(features[block == index].detach().cpu())  # a copy: indexed by a mask
            if sum(map(len, self._held[index])) >= _HELD:
                self._take_in(index)

    @torch.no_grad()
    def _take_in(self, index: int) -> None:
        if not self._held[index]:
            return
        rows = torch.cat(self._held[index]).to(self.outer)  # (n, D)
        self._held[index] = []
        self.count[index] += len(rows)
        self.total[index] += rows.sum(0)
        # Rank-n update in place, Σxxᵀ += XᵀX, without a second (D, D) matrix; of stripes only the part above the
        # diagonal: 5/8 of the work at D = 2048. `compute` fills in the rest.
        for first in range(0, rows.shape[1], _STRIPE):
            stripe = slice(first, first + _STRIPE)
            self.outer[index, stripe, first:].addmm_(rows[:, stripe].T, rows[:, first:])

    def compute(self) -> BlockSums:
        """Return the sums over all batches. They are the tensors of this object: read, do not modify."""
        for index in range(len(self.count)):
            self._take_in(index)
            for first in range(_STRIPE, self.outer.shape[1], _STRIPE):
                stripe = slice(first, first + _STRIPE)
                self.outer[index, stripe, :first] = self.outer[index, :first, stripe].T
        return BlockSums(self.count, self.total, self.outer)


_ROWS = 4096  # features in one float64 copy


def block_sums(features: Tensor, block: Tensor) -> BlockSums:
    """Return the sums of features (N, D), of any float dtype, in blocks (N,) int64, from 0 to the highest one."""
    metric = BlockMoments(features.shape[1], int(block.max()) + 1)
    for rows, index in zip(features.split(_ROWS), block.split(_ROWS), strict=True):
        metric.update(rows, index)
    return metric.compute()


class WeightedMoments:
    """Streaming sums of features (N, D) with weights: Σw, Σw², Σwx (D,) and Σwxxᵀ (D, D), float64."""

    def __init__(self, features: int) -> None:
        self.count = 0
        self.weight = self.square = 0.0
        self.total = torch.zeros(features, dtype=torch.float64)
        self.outer = torch.zeros(features, features, dtype=torch.float64)

    @torch.no_grad()
    def update(self, features: Tensor, weights: Tensor) -> None:
        """Add features (N, D), of any float dtype, with weights (N,) of at least 0; those of weight 0 do not count."""
        used = weights > 0
        rows, weights = features[used].to(self.outer), weights[used].to(self.outer)
        self.count += len(rows)
        self.weight += float(weights.sum())
        self.square += float(weights.square().sum())
        self.total += weights @ rows
        self.outer.addmm_(rows.T * weights, rows)

    def compute(self) -> Moments:
        """Return the number of images, μ = Σwx / W and S = (Σwxxᵀ / W - μμᵀ) / (1 - Σw² / W²), W = Σw.

        Raises:
            DarkroomError: fewer than 2 images.
        """
        if self.count < 2:
            raise DarkroomError(
                f"a covariance needs at least 2 images, not {self.count}: ingest more of these classes."
            )
        mean = self.total / self.weight
        cov = torch.addr(self.outer / self.weight, mean, mean, alpha=-1.0) / (1 - self.square / self.weight**2)
        return Moments(self.count, mean, (cov + cov.T).div_(2))
