"""What a model brings to the loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass
class Batch:
    """Images of one forward and backward pass.

    positions: place of each image in the endless training sequence, (N,) int64; noise and times follow from it.
    data: what the data set returned for their rows, tensors with N rows, on the training device.
    """

    positions: NDArray[np.int64]
    data: dict[str, Tensor]

    def __len__(self) -> int:
        return len(self.positions)

    def split(self, size: int) -> list["Batch"]:
        """Return the batch in pieces of at most `size` images."""
        return [
            Batch(self.positions[at : at + size], {name: value[at : at + size] for name, value in self.data.items()})
            for at in range(0, len(self), size)
        ]


class Rows(Protocol):
    """A data set that is read by row numbers."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        """Return arrays with one entry a row: images, latents, labels."""
        ...


# Losses of a batch by name, scalars, float32; "loss" is what is minimised, all are logged.
Losses = dict[str, Tensor]


@dataclass(frozen=True)
class Phase:
    """One turn of an update: a loss, and the module whose parameters it trains. A GAN has two turns, others one."""

    module: str
    loss: Callable[[Batch], Losses]


class Recipe(Protocol):
    """A model in training: its modules, its data, its losses."""

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Modules that are trained, by the names under which they are saved."""
        ...

    @property
    def phases(self) -> Sequence[Phase]:
        """The turns of an update, in order."""
        ...

    @property
    def train(self) -> Rows:
        """What is trained on."""
        ...

    @property
    def val(self) -> Rows:
        """What is validated on."""
        ...

    def validate(self, batch: Batch) -> Losses:
        """Return the losses of a validation batch: nothing dropped, the same noise each time."""
        ...

    def preview(self) -> NDArray[np.uint8] | None:
        """Return images made by the modules as they are, uint8 (N, C, H, W), or None for a model that makes none."""
        ...
