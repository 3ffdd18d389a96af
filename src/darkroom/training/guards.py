"""Checks that stop a training before it is lost, with messages that say what to do."""

# No effect on any output: stops a training with a sentence

import contextlib
import errno
import shutil
from pathlib import Path

import psutil
import torch

from darkroom.errors import DarkroomError
from darkroom.params.run import Run

_SPARE = 32 * 1024**2  # bytes left free for logs and other files


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the device, or the machine, has no memory left."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def out_of_memory(pass_size: int, state_bytes: int, device: torch.device, run: Run, whole_batch: bool) -> DarkroomError:
    """Return the out-of-memory error of a forward and backward pass of `pass_size` images.

    `state_bytes`: size of weights, gradients, optimizer and averages; `whole_batch`: `run.micro_batch` has no effect.
    """
    peak = f" (peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB)" if device.type == "cuda" else ""
    cures = [] if whole_batch else [f"set `run.micro_batch` to {max(1, pass_size // 2)}"]
    cures += [] if run.activation_checkpointing else ["set `run.activation_checkpointing` to true"]
    cures += [] if cures else ["raise `processes`, if there are more devices"]
    return DarkroomError(
        f"out of memory on {device}{peak} in a pass of {pass_size} images: weights, gradients, optimizer and averages "
        f"take {state_bytes / 1e9:.2f} GB; activations take the rest and grow with the pass. In params.yaml, "
        f"{', or '.join(cures)}. The result stays the same up to rounding, and the same command continues from the "
        "last checkpoint."
    )


def free_memory() -> int:
    """Return the free memory for this process in bytes: the machine's, or its control group's if that is less."""
    free = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):  # no such group, or no limit (`max`)
        limit = int((group / "memory.max").read_text())
        free = min(free, limit - int((group / "memory.current").read_text()))
    return free


def require_disk(folder: Path, needed: int, purpose: str) -> None:
    """Check that a disk has `needed` free bytes.

    Raises:
        OSError: ENOSPC, with the folder, where it does not.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE:
        raise OSError(
            errno.ENOSPC, f"{purpose} needs {needed / 1e6:,.0f} MB, but only {free / 1e6:,.0f} MB are free", str(folder)
        )


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error says that a disk, or a quota, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
