"""What the networks of a stage compute, hold and take while its real body runs, most of their calls spared."""

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

TIMED = 2  # calls of a network with inputs of the same shapes that are timed; from then on the last answer stands in
LONG = 0.05  # seconds of a call for which one is enough


class Counter(TorchDispatchMode):
    """Counts operations, and adds up the storages that they make, taking them off when they are freed.

    It sees what an allocator is requested: activations kept for the backward pass, copies of autocast, results on the
    way. Not what a kernel takes for itself. A process's resident memory would show what the allocator keeps, too.

    flops: operations of matrix products, convolutions and attention, a multiplication and an addition counted as two.
    peak: bytes at the highest.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        """Start with `known` tensors, weights and batch, whose bytes are not counted."""
        super().__init__()
        self.flops = self.peak = 0
        self._now = 0
        self._seen: dict[int, Any] = {}
        for tensor in known:
            self._add(tensor, 0)

    def _add(self, tensor: Tensor, size: int) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata  # the address of the storage itself: views share it
        if key in self._seen:
            return

        def freed(_: Any) -> None:
            del self._seen[key]
            self._now -= size

        self._seen[key] = weakref.ref(storage, freed)
        self._now += size
        self.peak = max(self.peak, self._now)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count it and what it made."""
        named = kwargs or {}
        count = flop_registry.get(func._overloadpacket)
        if count is None and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:  # in inference mode a composite operation arrives whole: count what it consists of
                result = func.decompose(*args, **named)
            if result is not NotImplemented:
                return result
        result = func(*args, **named)
        if count is not None:
            self.flops += count(*args, **named, out_val=result)
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf, leaf.untyped_storage().nbytes())
        return result


def clock() -> float:
    """Return seconds of this thread's own work, or where there is a GPU, of the wall once the GPU has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.thread_time()


@dataclass
class _Calls:
    """The calls of one network with inputs of the same shapes: operations, seconds and the last answer of one."""

    flops: int
    counted: float
    timed: int = 0
    seconds: float = 0.0
    answer: Any = None


class Meter:
    """Follows every network that a stage calls without gradients, and needs to know none of them.

    The first call with inputs of some shapes is counted, the next ones are timed; then the last answer stands in, for a
    sampler calls the same network at each of its steps, and a score for each batch.

    flops: of all calls, those included that were spared.
    peak: most bytes alive in a call, its inputs included.
    spared: seconds that the spared calls would have taken, less those that counting took.
    """

    def __init__(self) -> None:
        self.flops = self.peak = 0
        self.spared = 0.0
        self._tensors: dict[int, Tensor] = {}  # the parameters and buffers of all networks
        self._calls: dict[tuple[nn.Module, str], _Calls] = {}
        self._depth = 0  # of the networks that call each other

    @property
    def parameters(self) -> int | None:
        """Number of parameters of all networks that were called; None where none was."""
        if not self._tensors:
            return None
        return sum(tensor.numel() for tensor in self._tensors.values() if isinstance(tensor, nn.Parameter))

    @property
    def weights(self) -> int:
        """Bytes of the parameters and buffers of all networks that were called."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow all networks inside the block."""
        plain = nn.Module.__call__

        def call(network: nn.Module, *inputs: Any, **named: Any) -> Any:
            self._depth += 1
            try:
                if self._depth > 1 or torch.is_grad_enabled() or isinstance(network, torch.jit.ScriptModule):
                    return plain(network, *inputs, **named)
                return self._answer(network, lambda: plain(network, *inputs, **named), (inputs, named))
            finally:
                self._depth -= 1

        nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.__call__ = plain  # type: ignore[method-assign]
            self.forget()

    def forget(self) -> None:
        """Let all networks answer for themselves again: other weights are as fast, and their answers differ."""
        self._calls.clear()

    def _answer(self, network: nn.Module, forward: Callable[[], Any], given: Any) -> Any:
        """Return what a network answers: counted the first time, timed the next ones, then what it answered last."""
        key = network, repr(tree_map(_shape, given))
        calls = self._calls.get(key)
        if calls is None:
            own = [*network.parameters(), *network.buffers()]
            inputs = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
            self._tensors |= {id(tensor): tensor for tensor in own}
            began = clock()
            with Counter([*own, *inputs]) as counter:
                result = forward()
            self.flops += counter.flops
            self.peak = max(self.peak, counter.peak + sum(tensor.nbytes for tensor in inputs))
            self._calls[key] = _Calls(counter.flops, clock() - began)
            return result
        self.flops += calls.flops
        if calls.timed < TIMED and calls.seconds < LONG:
            began = clock()
            calls.answer = forward()
            seconds = clock() - began
            if not calls.timed:
                self.spared += seconds - calls.counted
            calls.seconds = min(calls.seconds, seconds) if calls.timed else seconds
            calls.timed += 1
        else:
            self.spared += calls.seconds
        return tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, calls.answer)


def _shape(value: Any) -> Any:
    """Return what stands for an argument: the shape of a tensor, and of what holds some, theirs."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, {name: _shape(held) for name, held in vars(value).items()}
    return value
