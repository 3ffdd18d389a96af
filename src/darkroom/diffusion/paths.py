"""Paths from data to noise in continuous time: x_t = α(t) x_0 + σ(t) ε, t = 0 data, t = 1 noise.

Sources: Lipman et al., 2022, arXiv 2210.02747; Albergo et al., "Stochastic interpolants", 2023, arXiv 2303.08797; Ma et
al., "SiT", 2024, arXiv 2401.08740, section 2. Their time runs the other way.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from darkroom.diffusion.settings import PathName

_LEAST, _MOST = 0.1, 20.0  # β of the path vp at data and at noise


class Levels(NamedTuple):
    """α, σ and their derivatives by t, each of the shape of t."""

    alpha: Tensor
    sigma: Tensor
    alpha_rate: Tensor
    sigma_rate: Tensor


def linear(t: Tensor) -> Levels:
    """α = 1 - t, σ = t."""
    one = torch.ones_like(t)
    return Levels(1 - t, t, -one, one)


def gvp(t: Tensor) -> Levels:
    """α = cos(πt/2), σ = sin(πt/2): the variance of unit data stays 1."""
    angle = math.pi / 2 * t
    alpha, sigma = angle.cos(), angle.sin()
    return Levels(alpha, sigma, -math.pi / 2 * sigma, math.pi / 2 * alpha)


def vp(t: Tensor) -> Levels:
    """α = exp(-(b - a) t²/4 - a t/2), σ = √(1 - α²), a = 0.1, b = 20: DDPM's linear schedule in continuous time.

    Song et al., 2020, "Score-based generative modeling through SDEs", arXiv 2011.13456, equation 33.
    """
    log_alpha = -0.25 * (_MOST - _LEAST) * t**2 - 0.5 * _LEAST * t
    alpha, sigma = log_alpha.exp(), (-torch.expm1(2 * log_alpha)).sqrt()
    alpha_rate = alpha * (-0.5 * (_MOST - _LEAST) * t - 0.5 * _LEAST)
    return Levels(alpha, sigma, alpha_rate, -alpha * alpha_rate / sigma)


PATHS: dict[PathName, Callable[[Tensor], Levels]] = {"linear": linear, "gvp": gvp, "vp": vp}
