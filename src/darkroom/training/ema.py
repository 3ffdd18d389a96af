"""Exponential moving averages of weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

State = dict[str, dict[str, Tensor]]


class EMA:
    """The averaged weights of named modules: w_ema <- d * w_ema + (1 - d) * w after each update.

    The decay warms up, d = min(decay, (1 + k) / (10 + k)) in update k, so that the random initial weights are soon
    forgotten. Buffers and integer tensors are copied. With decay 0 the average is the weights themselves.
    """

    def __init__(self, modules: Mapping[str, nn.Module], decay: float) -> None:
        self._modules = modules
        self._decay = decay
        self.state: State = {
            name: {key: value.detach().clone() for key, value in module.state_dict().items()}
            for name, module in modules.items()
        }
        # Paired once: to list a model's state at each update takes longer than to average it. A shared weight has
        # several names. Buffers are looked up each time, since a module may put another tensor in their place.
        self._averages: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._copied: list[tuple[str, list[str]]] = []
        for name, module in modules.items():
            named = dict(module.named_parameters(remove_duplicate=False))
            averaged = [key for key in self.state[name] if key in named]
            self._averages += [self.state[name][key] for key in averaged]
            self._weights += [named[key].detach() for key in averaged]
            self._copied.append((name, [key for key in self.state[name] if key not in named]))

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Take in the weights after update number `updates`, counted from 0."""
        decay = min(self._decay, (1 + updates) / (10 + updates))
        torch._foreach_lerp_(self._averages, self._weights, 1 - decay)
        for name, keys in self._copied:
            for key in keys:
                self.state[name][key].copy_(self._modules[name].get_buffer(key))

    def copy(self) -> State:
        """Return the averages of this moment."""
        return {name: {key: value.clone() for key, value in state.items()} for name, state in self.state.items()}

    @contextmanager
    def applied(self, other: State | None = None) -> Iterator[None]:
        """Give the modules the averaged weights, or others, inside the block, and their own back after it."""
        own: State = {
            name: {key: value.detach().clone() for key, value in module.state_dict().items()}
            for name, module in self._modules.items()
        }
        self._load(self.state if other is None else other)
        try:
            yield
        finally:
            self._load(own)

    def _load(self, state: State) -> None:
        for name, module in self._modules.items():
            module.load_state_dict(state[name])
