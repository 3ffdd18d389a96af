"""How long a call takes on a device, on a machine that may be busy."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

import torch

# Returns seconds. `time.perf_counter` is the wall's. On a machine that others use, `time.thread_time` comes nearer to
# what a stage takes when they are gone: this thread's own work, its share of the parallel one included, and no waiting.
Clock = Callable[[], float]


def synchronise(device: torch.device) -> None:
    """Wait until a device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


def seconds_of(function: Callable[[], Any], device: torch.device, budget: float, clock: Clock) -> float:
    """Return the seconds of a call, repeated for `budget` seconds after a first call that is not counted.

    The lower quartile: other programs make some calls slower, and none faster. On a GPU the wall clock counts, whatever
    `clock` is.
    """
    read = clock if device.type == "cpu" else time.perf_counter
    function()
    synchronise(device)
    times: list[float] = []
    began = time.perf_counter()
    while not times or time.perf_counter() - began < budget:
        at = read()
        function()
        synchronise(device)
        times.append(read() - at)
    return quantiles(times, n=4, method="inclusive")[0] if len(times) > 1 else times[0]


@contextmanager
def emptied(device: torch.device) -> Iterator[None]:
    """Free what the block leaves, before the next stage is measured."""
    try:
        yield
    finally:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
