"""What a model brings to the loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass
class Batch:
    """Images of one forward and backward pass.

    positions: place of each image in the endless training sequence, (N,) int64; noise and times follow from it.
    data: what the data set returned for their rows, tensors with N rows, on the training device.
    whole: the batch of this process that it is a micro-batch of; None: it is that batch.
    outputs: what the losses of one phase leave for the phases after it in the same optimizer step and for
        `Phase.after`, tensors with N rows and no gradient.
    """

    positions: NDArray[np.int64]
    data: dict[str, Tensor]
    whole: "Batch | None" = None
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.positions)

    def join_outputs(self, pieces: Sequence["Batch"]) -> None:
        """Take over the outputs of its micro-batches, in their order."""
        if pieces[0] is not self:
            self.outputs = {name: torch.cat([piece.outputs[name] for piece in pieces]) for name in pieces[0].outputs}

    def split(self, size: int) -> list["Batch"]:
        """Return the batch in micro-batches of at most `size` images; itself where it has no more."""
        if size >= len(self):
            return [self]
        return [
            Batch(
                self.positions[at : at + size], {name: value[at : at + size] for name, value in self.data.items()}, self
            )
            for at in range(0, len(self), size)
        ]


class IndexedDataset(Protocol):
    """A dataset that is read by row numbers, the sample indices."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> Mapping[str, Any]:
        """Return arrays or tensors with one entry a row: images, latents, labels.

        Args:
            rows: their numbers.
            positions: the place of each in the endless training sequence, which augmentation follows from; None:
                nothing is augmented, as in validation.
        """
        ...

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, by which a person finds the images."""
        ...


@runtime_checkable
class Ordered(Protocol):
    """A data set with an order of its own: shards that lie elsewhere are read a few at a time."""

    def order(self, seed: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which row stands at each position of the endless sequence, in each epoch every row once or oftener."""
        ...

    def prefetch(self, seed: int, position: int) -> None:
        """Begin to fetch what this position and those after it need; called before each batch is read."""
        ...


# Losses of a batch by name, scalars, float32; "loss" is what is minimised, all are logged.
Losses = dict[str, Tensor]

# Puts the rows of all processes together, in the order of their ranks: (n, ...) of each to (N, ...) for all.
Gather = Callable[[Tensor], Tensor]

# From rank, number of processes and what puts their rows together to scores by name: each does its part of the work.
Evaluate = Callable[[int, int, Gather], dict[str, float]]


@dataclass(frozen=True)
class Phase:
    """A loss and the module whose parameters it trains, in an optimizer step. A GAN has two phases, others one.

    module: its name in the recipe.
    loss: of a batch, or of a micro-batch where `run.micro_batch` sets their size.
    rate: factor of the training's learning rate.
    betas: of what AdamW moves of it; None: the training's.
    clip_norm: largest gradient norm; None: the training's; infinity: no clipping.
    start: images seen before the phase is first taken.
    after: called with the whole batch and its outputs after the step, also after one that a loss scaler left out for
        an overflow: for what no gradient moves, as a codebook.
    """

    module: str
    loss: Callable[[Batch], Losses]
    rate: float = 1.0
    betas: tuple[float, float] | None = None
    clip_norm: float | None = None
    start: int = 0
    after: Callable[[Batch], None] | None = None


class Recipe:
    """A model in training: its modules, its data, its losses. A base with the least that a recipe can say.

    modules: what is trained, by the names under which it is saved; the loop puts the wrapped modules of several
        processes in their place, so a loss calls `self.modules[name]`.
    phases: of an optimizer step, in order.
    train, val: what is trained and validated on.
    blocks: the modules whose activations are computed again in the backward pass with `run.activation_checkpointing`.
    evaluations: what scores the modules as they are, each with the images between two times.
    generated: those of these that score images which they make, as many whatever the data.
    whole_batch: whether a loss is of the batch as a whole, which `run.micro_batch` then does not cut.
    columns: images in a row of `preview`.
    knows_length: whether more than the learning rate depends on how long the training will be.
    by_class: whether image i of `strip` is one of class i.
    captions: what the images of `strip` were made of; empty: of no texts.
    histograms: what the last evaluations have counted, by name: counts of the values 0, 1, …, int64.
    """

    modules: dict[str, nn.Module]
    phases: Sequence[Phase]
    train: IndexedDataset
    val: IndexedDataset
    blocks: Sequence[nn.Module] = ()
    evaluations: Sequence[tuple[int, Evaluate]] = ()
    generated: Sequence[Evaluate] = ()
    whole_batch: bool = False
    columns: int = 10
    knows_length: bool = False
    by_class: bool = False
    captions: Sequence[str] = ()
    histograms: Mapping[str, NDArray[np.int64]] = {}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the losses of validation images, one value an image, (N,); of some images only where a name says so.

        Nothing is dropped, and the noise is the same each time.
        """
        raise NotImplementedError

    def preview(self) -> NDArray[np.uint8] | None:
        """Return images made by the modules as they are, uint8 (N, C, H, W), or None for a model that makes none."""
        return None

    def strip(self) -> NDArray[np.uint8] | None:
        """Return a few of the images of `preview`, (N, C, H, W), which follow from the weights alone; None: none."""
        return None

    def originals(self) -> NDArray[np.uint8] | None:
        """Return the real image of each image of `strip`, (N, C, H, W); None where they are of no real image."""
        return None
