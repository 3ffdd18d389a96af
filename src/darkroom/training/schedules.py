"""Learning rates as functions of the images seen."""

import math

from darkroom.schemas.training import Training

# The one-cycle policy starts at 1/25 of the highest rate and ends at 1/250000 of it, as torch's OneCycleLR does
# (Smith and Topin, "Super-convergence", 2018).
_START, _END = 1 / 25, 1 / 250_000


def _cosine(start: float, end: float, share: float) -> float:
    """Return start + (end - start) * (1 - cos(pi * share)) / 2."""
    return start + (end - start) * (1 - math.cos(math.pi * share)) / 2


def learning_rate(settings: Training, images: int) -> float:
    """Return the learning rate of the update that begins when `images` images have been seen.

    constant: linear warm-up, then the highest rate. cosine: linear warm-up, then a half cosine to 0. one_cycle: a half
    cosine up from 1/25 of the highest rate, and one down to nearly 0. Source: Loshchilov and Hutter, "SGDR", 2017.
    """
    top, warmup = settings.learning_rate, settings.warmup
    rising = images < warmup
    share = images / warmup if rising else (images - warmup) / (settings.images - warmup)
    if settings.schedule == "one_cycle":
        return _cosine(top * _START, top, share) if rising else _cosine(top, top * _END, share)
    if rising:
        return top * share
    return top if settings.schedule == "constant" else _cosine(top, 0.0, share)
