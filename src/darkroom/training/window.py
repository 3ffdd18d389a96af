"""The means of what is logged, between two records."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

# By name: the sum of the values, and how many they were.
State = dict[str, tuple[float, int]]


class Window:
    """Sums of logged values since the last record. They stay on the device until they are asked for."""

    def __init__(self, device: torch.device) -> None:
        # Summed in float64, which MPS does not have.
        self.dtype = torch.float32 if device.type == "mps" else torch.float64
        self._sums: dict[str, Tensor | float] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor | float]) -> None:
        """Take in the values of one update, scalars."""
        for name, value in values.items():
            if isinstance(value, Tensor):
                value = value.detach().to(self.dtype)
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def state(self) -> State:
        """Return the sums and counts as numbers, which return from JSON bit for bit."""
        return {name: (float(value), self._counts[name]) for name, value in self._sums.items()}

    def load(self, states: Sequence[State], rank: int, count: int) -> None:
        """Take what `state` returned in each process: one's own; from another number of processes, equal shares."""
        if len(states) != count:
            found = means(states)
            counts = {name: number for state in states for name, (_, number) in state.items()}
            states = [{name: (value * counts[name], counts[name]) for name, value in found.items()}] * count
        self._sums = {name: value for name, (value, _) in states[rank].items()}
        self._counts = {name: number for name, (_, number) in states[rank].items()}


def means(states: Iterable[State]) -> dict[str, float]:
    """Return the mean of each value over the windows of all processes."""
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for state in states:
        for name, (value, count) in state.items():
            sums[name] = sums.get(name, 0.0) + value
            counts[name] = counts.get(name, 0) + count
    return {name: value / counts[name] for name, value in sums.items()}
