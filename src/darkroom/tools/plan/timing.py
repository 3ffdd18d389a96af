"""How long a call takes on a device, on a machine that may be busy."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the process that asks DVC needs no torch
    import torch


def synchronise(device: "torch.device") -> None:
    """Wait until a device has done what it was given."""
    if device.type == "cpu":
        return
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


@dataclass
class Stopwatch:
    """Measures calls, and remembers how much longer they took than they worked: what other programs cost.

    On a CPU a call's seconds are of this thread's own work, its part of a parallel operation included, and no waiting:
    what it takes once the others are gone. On a GPU they are the wall's, and its load is not seen.

    wall: seconds of all calls on a CPU so far, as a clock on the wall has them.
    work: seconds of the same calls in which this thread ran.
    """

    wall: float = 0.0
    work: float = 0.0

    def once(self, function: Callable[[], Any], device: "torch.device") -> float:
        """Return the seconds of one call."""
        synchronise(device)
        began, worked = time.perf_counter(), time.thread_time()
        function()
        synchronise(device)
        wall, work = time.perf_counter() - began, time.thread_time() - worked
        if device.type != "cpu":
            return wall
        self.wall += wall
        self.work += work
        return work

    def seconds_of(self, function: Callable[[], Any], device: "torch.device", budget: float) -> float:
        """Return the seconds of a call, repeated for `budget` seconds of the wall; the caller has called it before.

        The lower quartile: other programs make some calls slower, and none faster.
        """
        times: list[float] = []
        began = time.perf_counter()
        while not times or time.perf_counter() - began < budget:
            times.append(self.once(function, device))
        return quantiles(times, n=4, method="inclusive")[0] if len(times) > 1 else times[0]


@contextmanager
def emptied(device: "torch.device") -> Iterator[None]:
    """Free what the block leaves, before the next stage is measured."""
    try:
        yield
    finally:
        gc.collect()
        if device.type == "cuda":
            import torch

            torch.cuda.empty_cache()
