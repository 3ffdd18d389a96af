"""What stops a training before it is lost, with a sentence that says what to do."""

import errno
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.schemas.run import Run

_SPARE = 32 * 1024**2  # bytes left free for logs and what else is written
_SKIPPED_IN_A_ROW = 10


class NotFiniteError(DarkroomError):
    """A loss or a gradient is not finite: the weights may be lost, the checkpoints are not."""


@dataclass
class Answer:
    """Whether loss and gradient of one turn of an update are finite, as soon as the device has got there."""

    images: int  # seen before the update
    module: str
    finite: Tensor  # (2,) bool, on the CPU: loss, gradient
    ready: Any  # a CUDA event; None where the answer is there

    @property
    def fault(self) -> str | None:
        """What is not finite, or None. Waits until the device has got there, and no longer."""
        if self.ready is not None:
            self.ready.synchronize()
        loss, gradient = self.finite.tolist()
        return "the loss" if not loss else None if gradient else f"the gradient of {self.module}"


def ask(images: int, module: str, loss: Tensor, norm: Tensor) -> Answer:
    """Return the answer for the loss and the gradient's norm of a turn, without waiting for a GPU."""
    finite = torch.stack([loss.isfinite(), norm.isfinite()])
    if not finite.is_cuda:
        return Answer(images, module, finite, None)
    host = torch.empty(2, dtype=torch.bool, pin_memory=True).copy_(finite, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return Answer(images, module, host, event)


def not_finite(images: int, batch: int, what: str, keys: list[str]) -> NotFiniteError:
    """Return the error of an update whose loss or gradient is not finite.

    Args:
        images: images seen before the update.
        batch: images of the update.
        what: which value, with its module.
        keys: of the images.
    """
    shown = ", ".join(keys[:8]) + (f" and {len(keys) - 8} more" if len(keys) > 8 else "")
    return NotFiniteError(
        f"{what} is not finite in the update of images {images:,} to {images + batch:,} (update "
        f"{images // batch + 1:,}; {shown}). Try a lower learning_rate or clip_norm, a longer warmup, precision fp32 "
        "or bf16; or look at these images; `non_finite: skip` leaves such updates out."
    )


def last_good(state: Path, kept: list[Path]) -> str:
    """Return a sentence on where a training would go on.

    Args:
        state: its state folder.
        kept: its checkpoints, oldest first.
    """
    if not kept:
        return f"There is no checkpoint yet in {state}."
    return (
        f"The last good checkpoint is {kept[-1]}: the same command continues from there and meets the same images, so "
        "change something first."
    )


def too_many_skipped(images: int, what: str) -> DarkroomError:
    """Return the error of a training that skips one update after the other."""
    return DarkroomError(
        f"{_SKIPPED_IN_A_ROW} updates in a row were skipped up to image {images:,}, since {what} was not finite: the "
        "weights themselves are likely lost. Lower the learning_rate, or take precision fp32 or bf16."
    )


def too_many(skipped: int) -> bool:
    """Return whether so many skipped updates in a row mean that the training is lost."""
    return skipped >= _SKIPPED_IN_A_ROW


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the device, or the machine, has no memory left."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def out_of_memory(pass_size: int, state_bytes: int, device: torch.device, run: Run) -> DarkroomError:
    """Return the error of a pass that did not fit.

    Args:
        pass_size: images in the forward and backward pass.
        state_bytes: what weights, gradients, optimizer and averages take.
        device: where it happened.
        run: the section `run`.
    """
    peak = f" (peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB)" if device.type == "cuda" else ""
    smaller = f"set `run.micro_batch` to {max(1, pass_size // 2)}"
    other = "" if run.activation_checkpointing else ", or `run.activation_checkpointing` to true"
    return DarkroomError(
        f"out of memory on {device}{peak} in a pass of {pass_size} images: weights, gradients, optimizer and averages "
        f"take {state_bytes / 1e9:.2f} GB, the rest is activations, which grow with the pass. In params.yaml {smaller}"
        f"{other}: the result stays the same to rounding, and the same command continues from the last checkpoint."
    )


def require_disk(folder: Path, needed: int, what: str) -> None:
    """Check that a disk has room for `needed` bytes.

    Raises:
        OSError: ENOSPC, with the folder, where it does not.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE:
        raise OSError(
            errno.ENOSPC, f"{what} needs {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free", str(folder)
        )


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error says that a disk, or a quota, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
