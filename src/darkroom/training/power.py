"""Averages of weights over a training with a power-function profile (Karras et al., 2024, arXiv 2312.02696).

The average at time t weighs the weights at time s <= t by p(s) = (γ + 1) s^γ / t^(γ + 1). Its width is the standard
deviation of p as a share of t, so it grows with the training and says the same of a short one and a long one. Times may
be counted in updates or in images: only their ratios matter.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def exponent(sigma_rel: float) -> float:
    """Return γ of the profile of relative width `sigma_rel`, in (0, 0.288): the positive root of a cubic.

    σ² = (γ + 1) / ((γ + 2)² (γ + 3)), the variance of p at t = 1, is γ³ + 7 γ² + (16 - σ⁻²) γ + 12 - σ⁻² = 0. Its
    coefficients change sign once there, so one root is positive, and the others have negative real parts.
    """
    inverse = sigma_rel**-2
    return float(np.roots([1.0, 7.0, 16.0 - inverse, 12.0 - inverse]).real.max())


def decay(time: int, gamma: float) -> float:
    """Return β = (1 - 1/t)^(γ + 1) of the update w_ema <- β w_ema + (1 - β) w, for update number t from 1.

    After t updates the weights of update k count (k^(γ + 1) - (k - 1)^(γ + 1)) / t^(γ + 1): the integral of p from
    k - 1 to k, without a remainder of the initial weights.
    """
    return (1 - 1 / time) ** (gamma + 1)


def product(time: ArrayLike, gamma: ArrayLike, other_time: ArrayLike, other_gamma: ArrayLike) -> NDArray[np.float64]:
    """Return ∫ p q ds of two profiles, broadcast over arrays, in float64.

    With m = min(t, t'): (γ + 1)(γ' + 1) / (γ + γ' + 1) · (m/t)^(γ + 1) · (m/t')^(γ' + 1) / m.
    """
    t, g, u, h = (np.asarray(value, dtype=np.float64) for value in (time, gamma, other_time, other_gamma))
    least = np.minimum(t, u)
    scale = (g + 1) * (h + 1) / (g + h + 1) / least
    return scale * (least / t) ** (g + 1) * (least / u) ** (h + 1)
