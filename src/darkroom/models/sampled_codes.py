"""Draw codes from logits, by Gumbel noise that follows from the image and the step alone."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.rng import random_numbers

_SMALLEST = np.finfo(np.float64).tiny  # of the uniform numbers, which may be 0


def min_p_filter(logits: Tensor, min_p: float) -> Tensor:
    """Return logits (..., K) with -inf where p_k < min_p max p, p = softmax(logits).

    Nguyen et al., 2024, arXiv 2407.01082. The most likely code always stays; 0 keeps all.
    """
    p = logits.softmax(dim=-1)
    return logits.masked_fill(p < min_p * p.amax(dim=-1, keepdim=True), -torch.inf)


def gumbel(seed: int, stream: str, numbers: Sequence[int], step: int, steps: int, count: int) -> NDArray[np.float64]:
    """Return Gumbel noise -log(-log u) of one of `steps` steps of some images, (N, count), float64.

    It follows from (seed, stream, image, step), not from the other images or the computation of codes.
    """
    positions = [number * steps + step for number in numbers]
    uniform = random_numbers(seed, stream, positions, 0, count)[1]
    noise: NDArray[np.float64] = -np.log(-np.log(np.maximum(uniform, _SMALLEST)))
    return noise
