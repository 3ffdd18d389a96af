"""Learning rates as functions of the images seen."""

import math
from collections.abc import Callable

from darkroom.params.training import Schedule, Training

# The one-cycle policy starts at 1/25 of the highest rate and ends at 1/250000 of it, as torch's OneCycleLR does
# (Smith and Topin, "Super-convergence", 2018).
_START, _END = 1 / 25, 1 / 250_000


def _cosine(start: float, end: float, fraction: float) -> float:
    """Return start + (end - start) * (1 - cos(pi * fraction)) / 2."""
    return start + (end - start) * (1 - math.cos(math.pi * fraction)) / 2


def _fraction(settings: Training, images: int) -> float:
    """Return how much of the way from the end of the warm-up to that of the schedule is done: 0 before, 1 after it."""
    end = settings.schedule_images or settings.images
    return min(1.0, max(0.0, (images - settings.warmup) / (end - settings.warmup)))


def _one_cycle(settings: Training, images: int) -> float:
    """Half a cosine up from 1/25 of the highest rate until `warmup`, then half a cosine down to nearly 0."""
    top, warmup = settings.learning_rate, settings.warmup
    if images < warmup:
        return _cosine(top * _START, top, images / warmup)
    return _cosine(top, top * _END, _fraction(settings, images))


def _constant(settings: Training, images: int) -> float:
    return settings.learning_rate


def _linear(settings: Training, images: int) -> float:
    """Return top * (1 - (1 - final_rate) * fraction)."""
    return settings.learning_rate * (1 - (1 - settings.final_rate) * _fraction(settings, images))


def _half_cosine(settings: Training, images: int) -> float:
    """Half a cosine from top to top * final_rate (Loshchilov and Hutter, "SGDR", 2017)."""
    top = settings.learning_rate
    return _cosine(top, top * settings.final_rate, _fraction(settings, images))


def _inverse_sqrt(settings: Training, images: int) -> float:
    """Return top / sqrt(max(images / decay_images, 1)) (Karras et al., 2024, arXiv 2312.02696)."""
    return settings.learning_rate / math.sqrt(max(images / (settings.decay_images or math.inf), 1))


def _exponential(settings: Training, images: int) -> float:
    """Return top * final_rate ^ fraction."""
    return settings.learning_rate * settings.final_rate ** _fraction(settings, images)


def _wsd(settings: Training, images: int) -> float:
    """Return top, and in the last `decay_fraction` of the images top * (1 - (1 - final_rate) * sqrt(d)), d of it done.

    Warm-up, stable, decay: Hägele et al., 2024 (arXiv 2405.18392), where final_rate is 0. Until the decay begins
    nothing depends on when it does.
    """
    start = settings.decay_start
    done = max(0, images - start) / (settings.images - start)
    return settings.learning_rate * (1 - (1 - settings.final_rate) * math.sqrt(done))


def _piecewise(settings: Training, images: int) -> float:
    """Return top * the rate of the last milestone passed; top before the first."""
    rates = [milestone.rate for milestone in settings.milestones if milestone.images <= images]
    return settings.learning_rate * (rates[-1] if rates else 1.0)


_SCHEDULES: dict[Schedule, Callable[[Training, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _half_cosine,
    "one_cycle": _one_cycle,
    "inverse_sqrt": _inverse_sqrt,
    "exponential": _exponential,
    "piecewise": _piecewise,
    "wsd": _wsd,
}


def learning_rate(settings: Training, images: int, schedule: Schedule | None = None) -> float:
    """Return the learning rate of the optimizer step after `images` images.

    Every schedule but one_cycle, which rises in its own way, is multiplied by a linear warm-up, images / warmup: 0 in
    the first step. linear, cosine and exponential begin to fall where the warm-up ends, and end at `schedule_images`;
    inverse_sqrt and piecewise count from the first image, wsd falls at the end.

    Args:
        settings: lengths, in images, and the highest rate.
        images: images seen before the step.
        schedule: another one than `settings.schedule`, for a group of parameters.
    """
    schedule = schedule or settings.schedule
    rate = _SCHEDULES[schedule](settings, images)
    if schedule == "one_cycle" or images >= settings.warmup:
        return rate
    return rate * (images / settings.warmup)
