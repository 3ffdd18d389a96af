"""Differentiable choices among codes: gumbel-softmax, straight-through, ReinMax; and the temperature.

Pure functions of given noise, float32 or float64. Logits, noise and results are (N, K, h, w), K the number of codes.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.models.tokenizers.dvae.settings import Temperature
from darkroom.rng import generators


def gumbel_noise(seed: int, stream: str, positions: Sequence[int], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return standard Gumbel noise, g = -log(e) with e ~ Exp(1), one block per position.

    Shape (len(positions), *shape), float32. A position's block does not depend on the other positions.
    """
    noise = np.empty((len(positions), *shape), dtype=np.float32)
    for row, source in zip(noise, generators(seed, stream, positions), strict=True):
        source.standard_exponential(dtype=np.float32, out=row)
    np.maximum(noise, np.finfo(np.float32).tiny, out=noise)  # 0 may be drawn, and has no logarithm
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


_EVERY = 100  # updates between upstream's steps


def compounded(update: int, epoch: int | None = None) -> int:
    """Return the sum of the numbers of the updates before `update` after which dalle-pytorch lowers its temperature.

    It does so after every hundredth update of each epoch, the first included, so after the updates e * epoch + 100 j.

    Args:
        update: number of the update, counted from 0 and through all epochs.
        epoch: updates in an epoch; None: all of the training is one.
    """
    if not epoch:
        steps = -(-update // _EVERY)
        return _EVERY * steps * (steps - 1) // 2
    whole, rest = divmod(update, epoch)
    each, last = -(-epoch // _EVERY), -(-rest // _EVERY)
    inside = _EVERY * (whole * each * (each - 1) + last * (last - 1)) // 2
    return epoch * (each * whole * (whole - 1) // 2 + last * whole) + inside


def temperature(settings: Temperature, update: int, batch: int, epoch: int | None = None) -> float:
    """Return the temperature of an update.

    exponential: max(start * exp(-rate * update), minimum): Jang et al., 2017 (arXiv 1611.01144), section 4.
    cosine: from start to minimum along half a cosine over `images` images, then minimum: Ramesh et al., 2021 (arXiv
        2102.12092), appendix A.2.
    compounding: dalle-pytorch's, tau <- max(tau * exp(-rate * update), minimum) after every hundredth update of an
        epoch. The factors accumulate, so it falls as exp(-rate * update² / 200).

    Args:
        settings: rule, start, minimum, rate or images.
        update: its number, counted from 0.
        batch: images in an update.
        epoch: updates in an epoch, for `compounding`; None: the training is one epoch.
    """
    start, minimum = settings.start, settings.minimum
    if settings.rule == "cosine":
        assert settings.images is not None  # the schema
        share = min(1.0, update * batch / settings.images)
        return minimum + (start - minimum) * (1 + math.cos(math.pi * share)) / 2
    assert settings.rate is not None
    exponent = update if settings.rule == "exponential" else compounded(update, epoch)
    return max(start * math.exp(-settings.rate * exponent), minimum)
