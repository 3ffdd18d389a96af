"""Fractions of independent images: their interval and standard error. Loads no torch."""

import math

NORMAL = 1.96  # standard errors on each side of a 95% interval


def wilson(fraction: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of a fraction of n independent images, valid also at 0 and 1.

    (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n), z = 1.96; Wilson, 1927.
    """
    z2 = NORMAL**2 / n
    middle = fraction + z2 / 2
    reach = NORMAL * math.sqrt(fraction * (1 - fraction) / n + z2 / (4 * n))
    return max(0.0, (middle - reach) / (1 + z2)), min(1.0, (middle + reach) / (1 + z2))


def share_and_error(name: str, fraction: float, n: int) -> dict[str, float]:
    """Return a fraction of n images and its standard error, which is not 0 at 0 and 1: a quarter of the interval."""
    low, high = wilson(fraction, n)
    return {name: fraction, f"{name}_se": (high - low) / (2 * NORMAL)}
