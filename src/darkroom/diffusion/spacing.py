"""Select the timesteps of a Gaussian noise schedule for a solver."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def timesteps_of(total: int, steps: int | str, spacing: str = "trailing") -> NDArray[np.int64]:
    """Return timesteps from 0 to `total` - 1, the noisiest first, int64 (steps,).

    Args:
        total: timesteps of the schedule.
        steps: their number; or OpenAI's strings: `ddimN` is every k-th from the first on, with the smallest k for N of
            them, `A,B,C` splits the schedule into equal sections with A timesteps of the first, which has least noise.
        spacing: for a number of steps. `trailing` ends at the noisiest (Lin et al., 2023, arXiv 2305.08891, table 2),
            `leading` begins at 0, `linspace` does both, as OpenAI's string `N` (Nichol and Dhariwal, 2021).

    Raises:
        ValueError: the schedule has no such timesteps; says what to do.
    """
    if isinstance(steps, str) and steps.startswith("ddim"):
        return _strided(total, int(steps.removeprefix("ddim")))[::-1].copy()
    if isinstance(steps, str):
        return _sections(total, [int(each) for each in steps.split(",")])[::-1].copy()
    if steps > total:
        raise ValueError(f"use at most {total} steps")
    if spacing == "linspace":
        return _sections(total, [steps])[::-1].copy()
    if spacing == "leading":
        return (np.arange(steps) * (total // steps))[::-1].copy()
    return np.round(np.arange(total, 0, -total / steps)).astype(np.int64)[:steps] - 1


def _strided(total: int, steps: int) -> NDArray[np.int64]:
    for stride in range(1, total):
        taken = np.arange(0, total, stride)
        if len(taken) == steps:
            return taken
    raise ValueError(f"no stride selects {steps} of {total} timesteps: choose another number")


def _sections(total: int, counts: Sequence[int]) -> NDArray[np.int64]:
    """Return timesteps of equal sections, both ends of a section included; the first sections are the longer ones."""
    taken: list[int] = []
    begin = 0
    for number, count in enumerate(counts):
        size = total // len(counts) + (number < total % len(counts))
        if count > size:
            raise ValueError(f"a section has {size} timesteps, but {count} are requested: use fewer")
        stride, place = (size - 1) / (count - 1) if count > 1 else 1.0, 0.0
        for _ in range(count):
            taken.append(begin + round(place))
            place += stride  # added up, not multiplied: rounding of ties follows
        begin += size
    return np.asarray(taken, np.int64)
