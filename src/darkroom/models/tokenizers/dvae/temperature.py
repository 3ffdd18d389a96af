"""The temperature of the gumbel-softmax in each update: a function of the update's number, so resume is exact."""

import math

from darkroom.models.tokenizers.dvae.settings import Temperature

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
        epoch. It multiplies what was multiplied before, so it falls as exp(-rate * update² / 200).

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
