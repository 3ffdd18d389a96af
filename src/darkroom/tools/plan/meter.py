"""What the networks of a stage compute, hold and take while its real body runs, most of their calls spared."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves, tree_map

from darkroom.tools.plan.counter import Counter

TIMED = 2  # calls of a network with inputs of the same shapes that are timed; from then on the last answer stands in
LONG = 0.05  # seconds of a call for which one is enough


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
        self._networks: list[nn.Module] = []
        self._calls: dict[tuple[int, str], _Calls] = {}
        self._depth = 0  # of the networks that call each other
        self._running: tuple[Counter, float, tuple[int, str], int] | None = None  # the call that is counted

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
        hooks = register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self.forget()

    def forget(self) -> None:
        """Let all networks answer for themselves again: other weights are as fast, and their answers differ."""
        for network in self._networks:
            vars(network).pop("forward", None)  # the class has its own
        self._networks.clear()
        self._calls.clear()
        self._depth = 0

    def _enter(self, network: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._depth += 1
        if self._depth > 1 or torch.is_grad_enabled() or isinstance(network, torch.jit.ScriptModule):
            return
        if "forward" not in vars(network):  # this call has begun; the stand-in answers from the next one on
            self._networks.append(network)
            self._tensors |= {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
            self._start(network, inputs, {})
            network.forward = self._stand_in(network, network.forward)

    def _leave(self, network: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._running is not None:
            self._stop()

    def _start(self, network: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        given = [leaf for leaf in tree_leaves((inputs, named)) if isinstance(leaf, Tensor)]
        counter = Counter([*network.parameters(), *network.buffers(), *given])
        held = sum(tensor.nbytes for tensor in given)
        self._running = counter, clock(), _key(network, inputs, named), held
        counter.__enter__()

    def _stop(self) -> None:
        assert self._running is not None
        (counter, began, key, held), self._running = self._running, None
        counter.__exit__(None, None, None)
        self.flops += counter.flops
        self.peak = max(self.peak, counter.peak + held)
        self._calls[key] = _Calls(counter.flops, clock() - began)

    def _stand_in(self, network: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return what answers in the place of a network's own `forward`."""

        def answer(*inputs: Any, **named: Any) -> Any:
            if self._depth > 1 or torch.is_grad_enabled():
                return forward(*inputs, **named)
            calls = self._calls.get(_key(network, inputs, named))
            if calls is None:
                self._start(network, inputs, named)
                result = forward(*inputs, **named)
                self._stop()
                return result
            self.flops += calls.flops
            if calls.timed < TIMED and calls.seconds < LONG:
                began = clock()
                calls.answer = forward(*inputs, **named)
                seconds = clock() - began
                if not calls.timed:
                    self.spared += seconds - calls.counted
                calls.seconds = min(calls.seconds, seconds) if calls.timed else seconds
                calls.timed += 1
            else:
                self.spared += calls.seconds
            return tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, calls.answer)

        return answer


def _key(network: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[int, str]:
    return id(network), repr(tree_map(_shape, (inputs, named)))


def _shape(value: Any) -> Any:
    """Return what stands for an argument: the shape of a tensor, and of what holds some, theirs."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, {name: _shape(held) for name, held in vars(value).items()}
    return value
