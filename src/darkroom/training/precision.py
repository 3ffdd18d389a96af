"""Precision of a training: autocast, loss scaler, TF32, memory layout, compilation, and checks for finite values."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

from darkroom.errors import DarkroomError
from darkroom.params.training import Training

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(settings: Training, device: torch.device) -> AbstractContextManager[None]:
    """Return the context of a forward pass: matrix products and convolutions in `precision`, the rest in float32."""
    dtype = _TYPES.get(settings.precision, torch.bfloat16)
    return torch.autocast(device.type, dtype=dtype, enabled=settings.precision != "fp32")


def seed_rng(seed: int, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and of a device, which dropout uses, and no others.

    `torch.manual_seed` seeds every kind of device that torch knows, which takes longer than the rest between steps.
    """
    torch.default_generator.manual_seed(seed)
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).manual_seed(seed)


def allow_tf32(allowed: bool) -> None:
    """Set whether NVIDIA GPUs multiply float32 with 10 mantissa bits."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


@contextmanager
def tf32(settings: Training) -> Iterator[None]:
    """Apply the setting `tf32` inside the block; scores and outputs of a training stay exact."""
    allow_tf32(settings.tf32)
    try:
        yield
    finally:
        allow_tf32(False)


def set_memory_format(module: nn.Module, settings: Training) -> None:
    """Apply the memory layout and the compilation of the training's settings to a module, in place: names stay."""
    if settings.channels_last:
        module.to(memory_format=torch.channels_last)
    if settings.compile:
        # The adaptive weight of a discriminator differentiates a part of the graph before the whole of it.
        torch._functorch.config.donated_buffer = False
        torch._inductor.config.fallback_random = True  # dropout draws the same numbers as without compilation
        module.compile(dynamic=False)


def run_in(module: nn.Module, precision: str, compiled: bool, device: torch.device) -> None:
    """Use autocast and compilation in a network for sampling, in place.

    Args:
        module: returns a tensor or several, which are float32 again.
        precision: `fp32` or `bf16`.
        compiled: whether torch compiles it, for fixed shapes.
        device: where it runs.
    """
    if precision != "fp32":
        forward, dtype = module.forward, _TYPES[precision]

        def cast(*inputs: Any, **named: Any) -> Any:
            with torch.autocast(device.type, dtype=dtype):
                outputs = forward(*inputs, **named)
            return tree_map_only(Tensor, Tensor.float, outputs)

        module.forward = cast
    if compiled:
        module.compile(dynamic=False)


def checkpoint_activations(blocks: Iterable[nn.Module]) -> None:
    """Make blocks keep only their inputs and recompute the rest in the backward pass: the same bits.

    Source: Chen et al., "Training deep nets with sublinear memory cost", 2016, arXiv 1604.06174.

    Raises:
        DarkroomError: the recipe has no blocks.
    """
    modules = list(blocks)
    if not modules:
        raise DarkroomError("this model has no blocks to checkpoint: set `run.activation_checkpointing` to false.")
    for block in modules:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


# --------------------------------------------------------------------------------------------------------------------
# Losses and gradients that are not finite: stop with the images' keys


class NotFiniteError(DarkroomError):
    """A loss or a gradient is not finite. The weights may be unusable; the checkpoints are not affected."""


def _fault(module: str, finite: Tensor) -> str | None:
    """Return the name of the value that is not finite, from (2,) bool of loss and gradient, or None."""
    loss, gradient = finite.tolist()
    return "the loss" if not loss else None if gradient else f"the gradient of {module}"


class Finite:
    """Stop a training whose loss or gradient is not finite, at the same step in all processes.

    On a GPU the result is read one step later, so that nothing waits for it: steps after an error are discarded and
    never saved. `keys` returns the keys of the images in the step after a number of images.
    """

    def __init__(
        self, settings: Training, device: torch.device, processes: int, keys: Callable[[int], list[str]]
    ) -> None:
        self._settings, self._processes, self._keys = settings, processes, keys
        self._deferred = device.type == "cuda" and settings.precision != "fp16"
        # Images before the step, module, (2,) bool on the host, and the CUDA event after which these are computed.
        self._checks: list[tuple[int, str, Tensor, torch.cuda.Event | None]] = []

    def check(self, images: int, module: str, loss: Tensor, norm: Tensor, scaler: torch.amp.GradScaler) -> None:
        """Check the loss and the gradient's norm of one phase of the step after `images`, before it is taken.

        The loss scaler of fp16 skips steps that overflow, and lowers its scale: they are allowed until the scale is
        below 1.

        Raises:
            NotFiniteError: one is not finite.
        """
        # One process's loss may be infinite with gradients that are not; the norm is the same in all of them.
        alone = self._processes == 1
        finite = torch.stack([(loss if alone else torch.zeros_like(norm)).isfinite(), norm.isfinite()])
        if self._deferred:
            event = None
            if finite.is_cuda:
                finite = torch.empty(2, dtype=torch.bool, pin_memory=True).copy_(finite, non_blocking=True)
                event = torch.cuda.Event()
                event.record()
            self._checks.append((images, module, finite, event))
        elif (error := _fault(module, finite)) is not None:
            overflow = scaler.is_enabled() and scaler.get_scale() >= 1
            if not overflow or (alone and not bool(loss.isfinite())):
                raise self._stop(images, error)

    def settle(self, images: int) -> None:
        """Read the results of the steps before `images`.

        Raises:
            NotFiniteError: a loss or gradient was not finite.
        """
        while self._checks and self._checks[0][0] < images:
            before, module, finite, event = self._checks.pop(0)
            if event is not None:
                event.synchronize()  # waits for this computation, and no longer
            if (error := _fault(module, finite)) is not None:
                raise self._stop(before, error)

    def _stop(self, images: int, error: str) -> NotFiniteError:
        keys, batch = self._keys(images), self._settings.batch
        shown = ", ".join(keys[:8]) + (f" and {len(keys) - 8} more" if len(keys) > 8 else "")
        return NotFiniteError(
            f"{error} is not finite in the optimizer step of images {images:,} to {images + batch:,} (step "
            f"{images // batch + 1:,}; {shown}). Try a lower learning_rate or clip_norm, a longer warmup, or precision "
            "fp32 or bf16; or inspect these images."
        )
