"""The fraction of codes that are masked, in training and while sampling."""

import numpy as np
from numpy.typing import NDArray

from darkroom.models.generators.masked.settings import Schedule


def masked_fraction(schedule: Schedule, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the fraction of masked codes for u in [0, 1], of its shape, from 1 down to 0.

    cosine: cos(πu/2) (Chang et al., "MaskGIT", 2022); arccos: 2/π arccos(u) (Besnier et al., 2025); linear: 1 - u.
    """
    if schedule == "cosine":
        return np.cos(np.pi / 2 * u)
    return 2 / np.pi * np.arccos(u) if schedule == "arccos" else 1 - u
