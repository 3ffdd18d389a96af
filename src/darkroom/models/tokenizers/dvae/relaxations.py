"""A choice among codes that gradients pass through: gumbel-softmax, straight-through, ReinMax.

Pure functions of given noise, float32 or float64. Logits, noise and results are (N, K, h, w), K the number of codes.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.rng import generators


def gumbel_noise(seed: int, stream: str, positions: Sequence[int], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return standard Gumbel noise, g = -log(e) with e ~ Exp(1), one block a position.

    Shape (len(positions), *shape), float32. A position's block does not depend on the other positions.
    """
    noise = np.empty((len(positions), *shape), dtype=np.float32)
    for row, source in zip(noise, generators(seed, stream, positions), strict=True):
        source.standard_exponential(dtype=np.float32, out=row)
    np.maximum(noise, np.finfo(np.float32).tiny, out=noise)  # of 0, which may be drawn, there is no logarithm
    np.log(noise, out=noise)
    return np.negative(noise, out=noise)


def gumbel_softmax(logits: Tensor, noise: Tensor, temperature: Tensor | float) -> Tensor:
    """Return softmax((l + g) / tau): Jang et al., 2017 (arXiv 1611.01144), equation 2."""
    return ((logits + noise) / temperature).softmax(dim=1)


def one_hot(scores: Tensor) -> Tensor:
    """Return 1 for the highest score of each place and 0 for the others, without a gradient."""
    return torch.zeros_like(scores).scatter_(1, scores.argmax(dim=1, keepdim=True), 1.0)


def straight_through(soft: Tensor) -> Tensor:
    """Return the one-hot choice with the gradient of the soft one: D - stopgrad(y) + y (Jang et al., section 2.2)."""
    return one_hot(soft.detach()) - soft.detach() + soft


def reinmax(logits: Tensor, choice: Tensor, temperature: Tensor | float) -> Tensor:
    """Return the one-hot choice D with ReinMax's gradient, which is exact to second order.

    pi0 = softmax(l); pi1 = (D + softmax(l / tau)) / 2, with the gradient of a softmax of l; pi2 = 2 pi1 - pi0 / 2; the
    result is pi2 - stopgrad(pi2) + D. Liu et al., 2023 (arXiv 2304.08612), algorithm 2.

    Args:
        logits: l.
        choice: D, sampled from softmax(l): `straight_through(gumbel_softmax(...))`, whose own gradient is not used.
        temperature: tau; 1 gives second order, higher ones trade bias for variance.
    """
    choice = choice.detach()
    middle = ((choice + (logits / temperature).softmax(dim=1)) / 2).log()
    pi0, pi1 = logits.softmax(dim=1), ((middle - logits).detach() + logits).softmax(dim=1)
    pi2 = 2 * pi1 - pi0 / 2
    return pi2 - pi2.detach() + choice


def kl_to_uniform(logits: Tensor) -> Tensor:
    """Return KL(softmax(l) || uniform) = sum_k q_k (log q_k + log K) of each place, (N, h, w) of (N, K, h, w)."""
    log_q = logits.log_softmax(dim=1)
    return (log_q.exp() * (log_q + float(np.log(logits.shape[1])))).sum(dim=1)
