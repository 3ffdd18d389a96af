"""Precision, memory and speed of the networks in training: autocast, the loss scaler, TF32, layout, compilation."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from darkroom.errors import DarkroomError
from darkroom.params.training import Training

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(settings: Training, device: torch.device) -> AbstractContextManager[None]:
    """Return the context of a forward pass: matrix products and convolutions in `precision`, the rest in float32."""
    dtype = _TYPES.get(settings.precision, torch.bfloat16)
    return torch.autocast(device.type, dtype=dtype, enabled=settings.precision != "fp32")


def loss_scaler(settings: Training, device: torch.device) -> torch.amp.GradScaler:
    """Return the scaler that keeps small gradients of fp16 above zero; for other precisions it does nothing.

    Source: Micikevicius et al., "Mixed precision training", 2018, arXiv 1710.03740, section 3.2.
    """
    return torch.amp.GradScaler(device.type, enabled=settings.precision == "fp16")


def seed_rng(seed: int, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and of a device, which dropout uses, and no others.

    `torch.manual_seed` seeds every kind of device that torch knows, which takes longer than all else between steps.
    """
    torch.default_generator.manual_seed(seed)
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).manual_seed(seed)


def allow_tf32(allowed: bool) -> None:
    """Let NVIDIA GPUs multiply float32 with 10 bits of the mantissa, or not."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


@contextmanager
def tf32(settings: Training) -> Iterator[None]:
    """Multiply as `tf32` says inside the block; what is scored beside a training, or leaves it, stays exact."""
    allow_tf32(settings.tf32)
    try:
        yield
    finally:
        allow_tf32(False)


def set_memory_format(module: nn.Module, settings: Training) -> None:
    """Give a module the memory layout and the compilation of its training's settings, in place: names stay."""
    if settings.channels_last:
        module.to(memory_format=torch.channels_last)
    if settings.compile:
        # The adaptive weight of a discriminator differentiates a part of the graph before the whole of it.
        torch._functorch.config.donated_buffer = False
        torch._inductor.config.fallback_random = True  # dropout draws what it draws without compilation
        module.compile(dynamic=False)


def run_in(module: nn.Module, precision: str, compiled: bool, device: torch.device) -> None:
    """Make a network compute by autocast and be compiled, in place, where it is sampled and not trained.

    Args:
        module: returns one tensor, which is float32 again.
        precision: `fp32` or `bf16`.
        compiled: whether torch compiles it, for shapes that stay.
        device: where it runs.
    """
    if precision != "fp32":
        forward, dtype = module.forward, _TYPES[precision]

        def cast(*inputs: Tensor) -> Tensor:
            with torch.autocast(device.type, dtype=dtype):
                found: Tensor = forward(*inputs)
            return found.float()

        module.forward = cast
    if compiled:
        module.compile(dynamic=False)


def checkpoint_activations(blocks: Iterable[nn.Module]) -> None:
    """Make blocks keep their inputs alone and compute the rest again in the backward pass: the same bits.

    Source: Chen et al., "Training deep nets with sublinear memory cost", 2016, arXiv 1604.06174.

    Raises:
        DarkroomError: the recipe names no blocks.
    """
    found = list(blocks)
    if not found:
        raise DarkroomError("this model has no blocks to checkpoint: set `run.activation_checkpointing` to false.")
    for block in found:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
