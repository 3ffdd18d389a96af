"""What this machine has, and whether convolutions are quicker in bf16 on it."""

import time
from dataclasses import dataclass

_PAYS = 1.2  # times as quick, from which half the precision is taken


@dataclass(frozen=True)
class Machine:
    """What the settings depend on.

    cores: that this process may use.
    gpu: whether networks run on a GPU.
    bf16: whether that GPU computes in bf16; on a CPU whether its convolutions are quicker in it.
    """

    cores: int
    gpu: bool = False
    bf16: bool = False

    @property
    def threads(self) -> int:
        """CPU threads of a training: two run side by side, on a GPU one after another."""
        return max(1, self.cores // 2) if not self.gpu else max(1, min(4, self.cores))


def this_machine(device: str) -> Machine:
    """Return what this machine has; no GPU where `run.device` is cpu."""
    import torch  # takes seconds

    from darkroom.tools.cores import core_count

    gpu = device != "cpu" and torch.cuda.is_available()
    return Machine(
        core_count(), gpu, torch.cuda.is_bf16_supported(False) if gpu else _seconds(False) > _PAYS * _seconds(True)
    )


def _seconds(bf16: bool) -> float:
    """Return the least seconds of a forward and backward pass of a small convolutional network on one CPU thread.

    A CPU without units for bf16 emulates it, up to 20 times as slowly; what it says of itself does not tell.
    """
    import torch
    from torch import nn

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    network = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1))
    images, least = torch.zeros(32, 64, 16, 16), float("inf")
    for _ in range(3):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = network(images).float().square().mean()
        loss.backward()
        least = min(least, time.perf_counter() - start)
    torch.set_num_threads(threads)
    return least
