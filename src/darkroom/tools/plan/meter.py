"""Measure operations, memory and time of the networks of a running stage, and skip most of their calls."""

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

TIMED = 2  # timed calls of a network with inputs of the same shapes; later calls return the last output
LONG = 0.05  # seconds of a call from which one timed call is enough


class Counter(TorchDispatchMode):
    """Count operations, and the bytes of the storages that they allocate and free.

    It counts requests to the allocator: activations for the backward pass, copies of autocast, intermediate results. It
    misses workspaces of kernels. Resident memory would also include what the allocator caches.

    flops: operations of matrix products, convolutions and attention; a multiplication and an addition count as two.
    peak: maximum number of bytes.
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
        """Run an operation, and count it and its results."""
        named = kwargs or {}
        count = flop_registry.get(func._overloadpacket)
        if count is None and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:  # in inference mode a composite operation arrives whole: count its parts
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
    """Return CPU seconds of this thread, or with a GPU, wall seconds after the GPU has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.thread_time()


@dataclass
class _Calls:
    """The calls of one network with inputs of the same shapes: operations, seconds and last output of a call."""

    flops: int
    counted: float
    timed: int = 0
    seconds: float = 0.0
    answer: Any = None


class Meter:
    """Track every network that a stage calls without gradients, whatever the network.

    The first call with given input shapes is counted, the next ones are timed; further calls return the last output,
    since a sampler calls the same network at each step, and a score for each batch.

    flops: operations of all calls, including skipped ones.
    peak: maximum number of live bytes in a call, including its inputs.
    spared: seconds that the skipped calls would have taken, minus those spent on counting.
    """

    def __init__(self) -> None:
        self.flops = self.peak = 0
        self.spared = 0.0
        self._tensors: dict[int, Tensor] = {}  # the parameters and buffers of all networks
        self._calls: dict[tuple[nn.Module, str], _Calls] = {}
        self._depth = 0  # of the networks that call each other

    @property
    def parameters(self) -> int | None:
        """Number of parameters of all called networks; None if there were no calls."""
        if not self._tensors:
            return None
        return sum(tensor.numel() for tensor in self._tensors.values() if isinstance(tensor, nn.Parameter))

    @property
    def weights(self) -> int:
        """Bytes of the parameters and buffers of all called networks."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Track all networks inside the block."""
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
        """Call all networks for real again: new weights take the same time, but give other outputs."""
        self._calls.clear()

    def _answer(self, network: nn.Module, forward: Callable[[], Any], given: Any) -> Any:
        """Return the output of a network: counted in the first call, timed in the next ones, then the last output."""
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
    """Return a key for an argument: the shape of a tensor, or the shapes of the tensors in a container.

    All whole numbers have one key, since they are places in a sequence, with little effect on the cost.
    """
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if type(value) is int:
        return int
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, {name: _shape(held) for name, held in vars(value).items()}
    return value
