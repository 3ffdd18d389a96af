"""Select the device of a stage's networks, make them deterministic, and configure memory reuse."""

import ctypes
import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from darkroom.errors import DarkroomError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def keep_freed_memory() -> None:
    """Make glibc keep the memory of freed tensors for new ones, instead of returning it to the kernel each time.

    Every update requests the same sizes again, and each new page is a fault: 5 to 9 % of the time of a training on
    CPUs, at the same peak. With another C library this does nothing.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, 1 << 30)
        library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def in_float32(device: torch.device) -> torch.autocast:
    """Return the context in which operations on a device are not cast to another precision."""
    return torch.autocast(device.type, enabled=False)


def to_device(values: Tensor | NDArray[Any], device: torch.device) -> Tensor:
    """Copy numbers to a device without waiting for its computations: from the host through pinned memory.

    A copy from other host memory waits until a GPU has finished all earlier work, and so does a copy of rows that are
    not contiguous.
    """
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type == "cuda" and tensor.device.type == "cpu" and not torch.compiler.is_compiling():
        return tensor.contiguous().pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def process_count() -> int:
    """Return the number of processes that share a training."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def of_all_processes(rows: Tensor) -> Tensor:
    """Gather the rows (N, …) of all processes in the order of their ranks, without a gradient; N must be equal."""
    if process_count() == 1:
        return rows
    pieces = [torch.empty_like(rows) for _ in range(process_count())]
    distributed.all_gather(pieces, rows.contiguous())
    return torch.cat(pieces)


def fill_batch(rows: torch.Tensor, batch: int) -> torch.Tensor:
    """Return at most `batch` rows, (N, ...), filled up to `batch` with the first one.

    Networks get batches of one size, so that the bits of a row do not depend on the number of other rows.
    """
    if len(rows) == batch:
        return rows
    return torch.cat([rows, rows[:1].expand(batch - len(rows), *rows.shape[1:])])


def set_up_device(threads: int, device: str) -> torch.device:
    """Fix torch's threads, deterministic algorithms and full float32, and return the device that `run.device` names.

    Every stage that runs a network calls this first. `auto` takes CUDA, then MPS, then the CPU. The runner has made a
    numbered CUDA device the only visible one.

    Raises:
        DarkroomError: the device is not available.
    """
    keep_freed_memory()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    # It helps to find uninitialised memory, takes time, and changes no bit.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    # TF32 keeps 10 bits of the 23: features and latents would err by about 1e-3.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(kind for kind, is_available in available.items() if is_available))
    kind = device.partition(":")[0]
    if not available[kind]:
        raise DarkroomError(
            f"`run.device` is {device}, but torch finds no such device: set it to auto or cpu in params.yaml."
        )
    return torch.device(kind)
