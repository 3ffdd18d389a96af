"""The interface of a model to the training loop: its data, losses and modules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass
class Batch:
    """The images of one forward and backward pass.

    positions: place of each image in the endless training sequence, (N,) int64; noise and times follow from it.
    data: the data set's tensors for their rows, with N rows, on the training device.
    whole: the batch of this process that contains this micro-batch; None: it is the whole batch.
    outputs: tensors that the losses of one phase pass to later phases in the same optimizer step and to
        `Phase.after`, with N rows and no gradient.
    """

    positions: NDArray[np.int64]
    data: dict[str, Tensor]
    whole: "Batch | None" = None
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.positions)

    def join_outputs(self, pieces: Sequence["Batch"]) -> None:
        """Join the outputs of its micro-batches, in their order."""
        if pieces[0] is not self:
            self.outputs = {name: torch.cat([piece.outputs[name] for piece in pieces]) for name in pieces[0].outputs}

    def split(self, size: int) -> list["Batch"]:
        """Split the batch into micro-batches of at most `size` images; return itself if it is small enough."""
        if size >= len(self):
            return [self]
        return [
            Batch(
                self.positions[at : at + size], {name: value[at : at + size] for name, value in self.data.items()}, self
            )
            for at in range(0, len(self), size)
        ]


class IndexedDataset(Protocol):
    """A data set that is read by row numbers, the sample indices."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> Mapping[str, Any]:
        """Return arrays or tensors with one entry per row: images, latents, labels.

        Args:
            rows: their numbers.
            positions: the place of each in the endless training sequence, which determines augmentation; None:
                no augmentation, as in validation.
        """
        ...

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, which identify the images in messages."""
        ...


@runtime_checkable
class Ordered(Protocol):
    """A data set with its own order: remote shards are read a few at a time."""

    def order(self, seed: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row at each position of the endless sequence; each epoch has every row at least once."""
        ...

    def prefetch(self, seed: int, position: int) -> None:
        """Start to fetch the data for this position and those after it; called before each batch is read."""
        ...


# Losses of a batch by name, scalars, float32; "loss" is what is minimised, all are logged.
Losses = dict[str, Tensor]

# Gathers the rows of all processes, in the order of their ranks: (n, ...) from each to (N, ...) on all.
Gather = Callable[[Tensor], Tensor]

# From rank, number of processes and a Gather to scores by name: each process does its part of the work.
Evaluate = Callable[[int, int, Gather], dict[str, float]]


@dataclass(frozen=True)
class Phase:
    """A loss and the module that it trains, in an optimizer step. A GAN has two phases, other models one.

    module: its name in the recipe.
    loss: of a batch, or of a micro-batch where `run.micro_batch` sets their size.
    lr_scale: factor of the training's learning rate.
    betas: of its AdamW; None: the training's.
    clip_norm: largest gradient norm; None: the training's; infinity: no clipping.
    start: images seen before the phase is first taken.
    after: called with the whole batch and its outputs after the step, also if the loss scaler skipped the step after
        an overflow: for values without gradients, such as a codebook.
    """

    module: str
    loss: Callable[[Batch], Losses]
    lr_scale: float = 1.0
    betas: tuple[float, float] | None = None
    clip_norm: float | None = None
    start: int = 0
    after: Callable[[Batch], None] | None = None


class Recipe:
    """A model in training: its modules, data and losses. This base class has the defaults.

    modules: the trained modules, by the names under which they are saved; with several processes the loop replaces
        them by their wrappers, so losses call `self.modules[name]`.
    phases: of an optimizer step, in order.
    train, val: the data sets for training and validation.
    blocks: the modules whose activations `run.activation_checkpointing` recomputes in the backward pass.
    evaluations: functions that score the current modules, each with the images between evaluations.
    generated: the evaluations that score generated images, whose number does not depend on the data.
    whole_batch: whether a loss needs the whole batch, so that `run.micro_batch` does not split it.
    columns: images in a row of `preview`.
    knows_length: whether more than the learning rate depends on the length of the training.
    by_class: whether image i of `sample_evolution` is one of class i.
    captions: the captions of the images of `sample_evolution`; empty: they have none.
    histograms: counts of the last evaluations by name, for the values 0, 1, …, int64.
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
        """Return the losses of validation images, one value per image, (N,); a name may restrict them to some images.

        There is no dropout, and the noise is the same each time.
        """
        raise NotImplementedError

    def preview(self) -> NDArray[np.uint8] | None:
        """Return images made by the current modules, uint8 (N, C, H, W); None: the model makes none."""
        return None

    def sample_evolution(self) -> NDArray[np.uint8] | None:
        """Return a few images of `preview`, (N, C, H, W), that depend only on the weights, or None."""
        return None

    def originals(self) -> NDArray[np.uint8] | None:
        """Return the real image of each image of `sample_evolution`, (N, C, H, W); None: they have none."""
        return None
