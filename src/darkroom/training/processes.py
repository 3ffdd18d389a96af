"""The processes that share a training: how they split batches, exchange values, and wrap modules.

Accelerate starts the process group, wraps modules (DDP, or FSDP by a configuration file) and feeds the trackers. Order,
noise and times depend on positions, so processes need not exchange them: each takes its slice of each batch.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, DistributedType, InitProcessGroupKwargs
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from darkroom.errors import DarkroomError

T = TypeVar("T")
_PATIENCE = timedelta(hours=2)


class Processes:
    """One process among those that share a training.

    Raises:
        DarkroomError: the number of processes is wrong, or the kind of parallelism is not supported.
    """

    def __init__(self, expected: int) -> None:
        self.accelerator = Accelerator(
            # Only the training's own keys decide, not the environment or a configuration file.
            mixed_precision="no",
            dynamo_backend="no",
            kwargs_handlers=[
                # Otherwise DDP reorders its buckets after the first backward pass of a process, so a resumed training
                # would sum in another order. Buffers follow from the data of all processes; a broadcast before each
                # pass would wait for a process that has nothing to validate.
                DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False),
                # The others wait while the first evaluates, draws, downloads, or saves with little memory.
                InitProcessGroupKwargs(timeout=_PATIENCE),
            ],
        )
        warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
        self.rank, self.count = self.accelerator.process_index, self.accelerator.num_processes
        self.device: torch.device = self.accelerator.device
        kind = self.accelerator.distributed_type
        if self.count != expected:
            raise DarkroomError(
                f"params.yaml sets {expected} processes, but {self.count} were started: let the stage start them."
            )
        if kind in (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM):
            raise DarkroomError(
                f"the accelerate configuration names {kind.value}, which is not supported: use FSDP (fsdp_version: 2)."
            )
        self.sharded = kind == DistributedType.FSDP
        if self.sharded and not self.accelerator.is_fsdp2:
            raise DarkroomError("the accelerate configuration names FSDP 1: set fsdp_version to 2.")
        # Flags and counts are exchanged on the CPU, separately from the gradients.
        self._group: Any = dist.new_group(backend="gloo", timeout=_PATIENCE) if self.count > 1 else None

    @property
    def division(self) -> tuple[int, int]:
        """Rank and count for work that processes can split; with sharded weights, each does all of it, in step."""
        return (0, 1) if self.sharded else (self.rank, self.count)

    @property
    def first(self) -> bool:
        """Whether this process writes files and prints messages."""
        return self.rank == 0

    def prepare(self, module: nn.Module, optimizer: torch.optim.Optimizer | None) -> nn.Module:
        """Return the module that losses call: the module itself, or a wrapper that reduces gradients."""
        if self.sharded:
            prepared = self.accelerator.prepare(module, *([optimizer] if optimizer else []))
            return prepared[0] if optimizer else prepared
        return self.accelerator.prepare_model(module)

    @contextmanager
    def apart(self, modules: Sequence[nn.Module]) -> Iterator[None]:
        """Accumulate gradients without synchronising them inside the block: for all micro-batches but the last."""
        with ExitStack() as stack:
            for module in modules if self.count > 1 else ():
                stack.enter_context(self.accelerator.no_sync(module))
            yield

    def agree(self, *flags: int) -> list[int]:
        """Return the largest of each flag over all processes."""
        if self._group is None:
            return list(flags)
        largest = torch.tensor(flags, dtype=torch.int64)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self._group)
        return largest.tolist()

    def collect(self, value: T) -> list[T]:
        """Return the values of all processes, in the order of their ranks."""
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value, group=self._group)
        return values

    def rows(self, values: Tensor) -> Tensor:
        """Return the rows of all processes, (N, ...), on the CPU, in the order of their ranks."""
        if self.sharded:
            return values.cpu()
        return torch.cat([piece for piece in self.collect(values.cpu()) if len(piece)])


def whole(value: Tensor) -> Tensor:
    """Gather a tensor from its shards, on the CPU, the same on every process; each must call it."""
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def put(target: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into a target that may be a shard."""
    if isinstance(target, DTensor):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
    target.copy_(value)


def unshard(module: nn.Module) -> None:
    """Replace a module's shards by whole parameters on the CPU, to save them at the end of a training."""
    for owner in module.modules():
        for name, parameter in list(owner.named_parameters(recurse=False)):
            if isinstance(parameter, DTensor):
                whole_parameter = nn.Parameter(parameter.full_tensor().detach().cpu(), parameter.requires_grad)
                owner.register_parameter(name, whole_parameter)
