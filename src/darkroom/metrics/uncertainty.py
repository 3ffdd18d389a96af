"""The delete-one-block jackknife: standard errors, and the bias in 1/N, from block statistics alone.

Source: Künsch, "The jackknife and the bootstrap for general stationary observations", 1989; Efron, "The jackknife, the
bootstrap and other resampling plans", 1982. It covers the sampling noise of the generated images only, not the seed of
a training. A percentile bootstrap of the Fréchet distance covers 0% of the time, because each resample adds bias.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from darkroom.metrics.score import count_blocks
from darkroom.rng import order

_SEED = 0  # of the blocks


@dataclass(frozen=True)
class Jackknife:
    """A score of all samples, the same without its bias of order 1/N, and the standard error of both.

    With a single block (too few samples) the last two are None.
    """

    value: float
    debiased: float | None
    se: float | None

    def named(self, name: str) -> dict[str, float]:
        """Return NAME and, if known, its error NAME_se, as in a metrics file."""
        return {name: self.value} if self.se is None else {name: self.value, f"{name}_se": self.se}


def left_out(blocks: int) -> range:
    """Return the blocks that are left out in turn; a single block is not left out."""
    return range(blocks if blocks > 1 else 0)


def jackknife(value: float, without: Sequence[float]) -> Jackknife:
    """Return the jackknife of a score θ of all samples and its B values θ_b, each with one block left out.

    debiased = B θ - (B - 1) mean(θ_b);  se = sqrt((B - 1) / B · Σ_b (θ_b - mean(θ_b))²). Blocks are equally large, or
    differ by one sample. With a single block, only the score is known.
    """
    blocks = len(without)
    if not blocks:
        return Jackknife(value, None, None)
    mean = math.fsum(without) / blocks
    spread = math.fsum((left - mean) ** 2 for left in without)
    debiased = blocks * value - (blocks - 1) * mean
    return Jackknife(value, debiased, math.sqrt((blocks - 1) / blocks * spread))


def assign_blocks(samples: int, blocks: int, classes: Tensor | None = None) -> Tensor:
    """Return the block of each sample, shape (samples,), int64: drawn at random, the classes spread evenly.

    Samples may be ordered by class, so no block is a contiguous range. Blocks differ by at most one sample, and by at
    most one sample of a class: the error is that of random images of the given classes.
    For `blocks`, at most B, see `count_blocks`; `classes` (samples,) int64, None: no classes.
    """
    blocks = count_blocks(samples, blocks)
    mixed = torch.from_numpy(order(_SEED, samples, np.arange(samples)))
    if classes is not None:
        mixed = mixed[torch.argsort(classes[mixed], stable=True)]  # by class, mixed within each
    block = torch.empty(samples, dtype=torch.int64)
    block[mixed] = torch.arange(samples) % blocks  # dealt out like cards
    return block


def mean_and_error(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return the mean and its standard error, s / sqrt(n) with s² the unbiased variance; a single image has none."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return {name: mean}
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return {name: mean, f"{name}_se": math.sqrt(variance / count)}


def weighted_mean_and_error(name: str, values: Tensor, weights: Tensor | None) -> dict[str, float]:
    """Return Σ wᵢ vᵢ and its standard error, √(Σ wᵢ² (vᵢ - mean)²), of values (N,) and weights (N,) of sum 1.

    Without weights as `mean_and_error`.
    """
    if weights is None or len(values) < 2:
        return mean_and_error(name, values.tolist())
    mean = (weights * values).sum()
    return {name: float(mean), f"{name}_se": float((weights * (values - mean)).square().sum().sqrt())}
