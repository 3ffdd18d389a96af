"""Losses and gradients that are not finite: stop with the images' names, or leave the update out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.params.training import Training

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


def _ask(images: int, module: str, loss: Tensor, norm: Tensor) -> Answer:
    """Return the answer for the loss and the gradient's norm of a turn, without waiting for a GPU."""
    finite = torch.stack([loss.isfinite(), norm.isfinite()])
    if not finite.is_cuda:
        return Answer(images, module, finite, None)
    host = torch.empty(2, dtype=torch.bool, pin_memory=True).copy_(finite, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return Answer(images, module, host, event)


class Finite:
    """Decides whether the step of a turn may be taken, alike in all processes.

    A GPU is asked in each update and answers one update later, so that nobody waits for it: what came after a fault is
    then thrown away, and never saved. Whoever must know at once, because a step may be left out, waits.

    Args:
        settings: the training's.
        device: where losses are.
        processes: how many share the training.
        keys: returns the keys of the images of the update that begins after so many images.
    """

    def __init__(
        self, settings: Training, device: torch.device, processes: int, keys: Callable[[int], list[str]]
    ) -> None:
        self._settings, self._processes, self._keys = settings, processes, keys
        self.patient = device.type == "cuda" and settings.non_finite == "stop" and settings.precision != "fp16"
        self.skipped = 0  # updates left out in a row
        self._asked: list[Answer] = []

    def allows(self, images: int, module: str, loss: Tensor, norm: Tensor, scaler: torch.amp.GradScaler) -> bool:
        """Return whether the step may be taken; where it may not, and is left out, that is told.

        A scaler of fp16 leaves out steps that overflowed by itself, and lowers its scale: they are allowed, until the
        scale is below 1.

        Raises:
            DarkroomError: it may not, and `non_finite` says stop, or too many were left out in a row.
        """
        # One process's loss may be infinite with gradients that are not; the norm is the same in all of them.
        alone = self._processes == 1
        answer = _ask(images, module, loss if alone else torch.zeros_like(norm), norm)
        if self.patient:
            self._asked.append(answer)
            return True
        fault = answer.fault
        if fault is None or (scaler.is_enabled() and scaler.get_scale() >= 1 and (not alone or bool(loss.isfinite()))):
            return True
        if self._settings.non_finite == "stop":
            raise self._error(images, fault)
        if self.skipped + 1 >= _SKIPPED_IN_A_ROW:
            raise DarkroomError(
                f"{_SKIPPED_IN_A_ROW} updates in a row were skipped up to image {images:,}, since {fault} was not "
                "finite: the weights themselves are likely lost. Lower the learning_rate, or take precision fp32 or "
                "bf16."
            )
        keys = ", ".join(self._keys(images)[:8])
        print(f"skipped the update of image {images:,}: {fault} is not finite ({keys}, …)")
        return False

    def settle(self, images: int) -> None:
        """Hear the answers for updates that began before `images`.

        Raises:
            NotFiniteError: one says that a loss or gradient was not finite.
        """
        while self._asked and self._asked[0].images < images:
            answer = self._asked.pop(0)
            if answer.fault is not None:
                raise self._error(answer.images, answer.fault)

    def _error(self, images: int, fault: str) -> NotFiniteError:
        keys, batch = self._keys(images), self._settings.batch
        shown = ", ".join(keys[:8]) + (f" and {len(keys) - 8} more" if len(keys) > 8 else "")
        return NotFiniteError(
            f"{fault} is not finite in the update of images {images:,} to {images + batch:,} (update "
            f"{images // batch + 1:,}; {shown}). Try a lower learning_rate or clip_norm, a longer warmup, precision "
            "fp32 or bf16; or look at these images; `non_finite: skip` leaves such updates out."
        )
