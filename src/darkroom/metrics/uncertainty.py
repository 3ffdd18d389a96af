"""The delete-one-block jackknife: standard errors, and the bias in 1/N, from block statistics alone.

Source: Künsch, "The jackknife and the bootstrap for general stationary observations", 1989; Efron, "The jackknife, the
bootstrap and other resampling plans", 1982. It covers the sampling noise of the generated images only, not the seed of
a training. A percentile bootstrap of the Fréchet distance covers 0% of the time, because each resample adds bias.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from darkroom.errors import DarkroomError

_WHERE = "the scoring stage's section of params.yaml"


@dataclass(frozen=True)
class Jackknife:
    """A score of all samples, the same without its bias of order 1/N, and the standard error of both."""

    value: float
    debiased: float
    se: float


def jackknife(value: float, without: Sequence[float]) -> Jackknife:
    """Return the jackknife of a score θ of all samples and its B values θ_b, each with one block left out.

    debiased = B θ - (B - 1) mean(θ_b);  se = sqrt((B - 1) / B · Σ_b (θ_b - mean(θ_b))²). Blocks are equally large, or
    differ by one sample.
    """
    blocks = len(without)
    if blocks < 2:
        raise DarkroomError(f"a jackknife needs at least 2 blocks, not {blocks}: raise `blocks` in {_WHERE}.")
    mean = math.fsum(without) / blocks
    spread = math.fsum((left - mean) ** 2 for left in without)
    return Jackknife(
        value=value,
        debiased=blocks * value - (blocks - 1) * mean,
        se=math.sqrt((blocks - 1) / blocks * spread),
    )


def assign_blocks(samples: int, blocks: int) -> Tensor:
    """Return the block of each sample, shape (samples,), int64: block of i = i · blocks // samples, so contiguous.

    Samples in a row have the classes of the whole (`models/generators/labels.py`), so contiguous blocks do; where
    sample i has class i modulo their number, blocks by i modulo B would each lack classes.

    Raises:
        DarkroomError: fewer than 2 blocks, or fewer than 2 samples a block.
    """
    if blocks < 2:
        raise DarkroomError(f"a jackknife needs at least 2 blocks, not {blocks}: raise `blocks` in {_WHERE}.")
    if samples < 2 * blocks:
        raise DarkroomError(
            f"{samples} samples are too few for {blocks} blocks of at least 2: "
            f"make more samples, or lower `blocks` in {_WHERE}."
        )
    return torch.arange(samples) * blocks // samples


def block_slices(block: Tensor) -> list[tuple[int, int]]:
    """Return [start, stop) of each block of a (N,) block vector that never decreases, as `assign_blocks` makes it."""
    counts = torch.bincount(block).tolist()
    stops = torch.bincount(block).cumsum(0).tolist()
    return [(stop - count, stop) for count, stop in zip(counts, stops, strict=True)]


def mean_and_error(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return the mean and its standard error, s / sqrt(n) with s² the unbiased variance; 0 for a single image."""
    count = len(values)
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / max(1, count - 1)
    return {name: mean, f"{name}_se": math.sqrt(variance / count)}
