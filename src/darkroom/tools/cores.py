"""Detect the hardware: cores, a GPU, and whether convolutions are faster in bf16. Does not import torch at load."""

import os
from dataclasses import dataclass

import psutil

_BATCH = 32  # images of the timed step
_PAYS = 1.2  # speed-up from which bf16 is used


def core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Machine:
    """The hardware that settings depend on."""

    cores: int  # that this process may use, and other processes leave free
    gpu: bool = False  # whether networks run on a GPU
    bf16: bool = False  # whether that GPU computes in bf16, or convolutions are faster in it on the CPU
    busy: int = 0  # further cores, which other processes use


def this_machine(device: str) -> Machine:
    """Return the hardware of this machine; no GPU if `run.device` is cpu."""
    import torch  # takes seconds

    gpu = device != "cpu" and torch.cuda.is_available()
    bf16 = torch.cuda.is_bf16_supported(False) if gpu else _seconds(False) > _PAYS * _seconds(True)
    cores = core_count()
    busy = min(cores - 1, _busy_cores())
    return Machine(cores - busy, gpu, bf16, busy)


def _busy_cores() -> int:
    """Return how many of the cores that this process may use are taken by others, over a second."""
    percent = psutil.cpu_percent(1.0, percpu=True)
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(percent))
    return round(sum(percent[core] for core in own if core < len(percent)) / 100)


def _seconds(bf16: bool) -> float:
    """Return the minimum time, in seconds, of a forward and backward pass of a small CNN on one CPU thread.

    A CPU without bf16 units emulates it, up to 20 times slower; its reported features do not show this.
    """
    import torch
    from torch import nn
    from torch.utils.benchmark import Timer

    network = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1))
    images = torch.zeros(_BATCH, 64, 16, 16)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = network(images).float().square().mean()
        loss.backward()

    timer = Timer("step()", globals={"step": step}, num_threads=1)
    return min(timer.timeit(1).mean for _ in range(3))
