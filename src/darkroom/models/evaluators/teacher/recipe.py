"""The recipe of the teacher: classification of labels, or of image rotations."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darkroom.data.reader import ImageShards
from darkroom.device import to_device
from darkroom.errors import DarkroomError
from darkroom.models.evaluators.teacher.network import Teacher
from darkroom.models.evaluators.teacher.settings import Augment
from darkroom.models.tokenizers.protocol import to_network
from darkroom.rng import random_numbers
from darkroom.training.data import Images
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase, Recipe

TURNS = 4
_ELSE = "set `train_teacher.target` to rotation, which needs no labels"


def class_names(*splits: ImageShards) -> list[str]:
    """Return the labels of the images of some splits, sorted.

    Raises:
        DarkroomError: an image has no label (the message names the first), or all labels are equal.
    """
    columns = [shards.label_column for shards in splits]
    if missing := sum(column.null_count for column in columns):
        at, column = next((at, column) for at, column in enumerate(columns) if column.null_count)
        first = splits[at].keys_of([column.is_null().index(True).as_py()])[0]
        raise DarkroomError(
            f"{missing:,} of {sum(map(len, columns)):,} images have no label, the first is {first}: {_ELSE}."
        )
    names = sorted({name for column in columns for name in pc.unique(column).to_pylist()})
    if len(names) < 2:
        raise DarkroomError(f"all images have the label {names}, which teaches nothing: {_ELSE}.")
    return names


class NamedImages(Images):
    """Stored images with the indices of their labels in a list of names: `labels` int64 (N,).

    The indices are the teacher's own: the class numbers of the catalog change with parts outside of the selection.
    """

    def __init__(self, shards: ImageShards, names: Sequence[str], seed: int = 0) -> None:
        super().__init__(shards, seed)
        numbers = {name: number for number, name in enumerate(names)}
        encoded = shards.label_column.combine_chunks().dictionary_encode()
        known = np.array([numbers[name] for name in encoded.dictionary.to_pylist()], dtype=np.int64)
        self.labels = known[encoded.indices.to_numpy()] if len(shards) else np.empty(0, dtype=np.int64)

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """Return the images and label indices of some rows."""
        return {**super().__getitems__(rows, positions), "labels": self.labels[list(rows)]}


def shifted(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Return images (N, C, H, W) shifted by `down` and `right` pixels, integers (N,); the padding repeats the edge."""
    rows = (torch.arange(images.shape[2], device=images.device) - down[:, None]).clamp(0, images.shape[2] - 1)
    columns = (torch.arange(images.shape[3], device=images.device) - right[:, None]).clamp(0, images.shape[3] - 1)
    number = torch.arange(len(images), device=images.device)[:, None, None]
    return images[number, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def turned(images: Tensor, turns: Tensor) -> Tensor:
    """Return images (N, C, H, H) rotated by `turns` quarter turns, integers (N,) from 0 to 3."""
    all_turns = torch.stack([images.rot90(quarter, (2, 3)) for quarter in range(TURNS)])  # (4, N, C, H, H)
    return all_turns[turns, torch.arange(len(images), device=images.device)]


class TeacherRecipe(Recipe):
    """L = cross-entropy of the classes, or of the quarter turns of each image.

    Turns: Gidaris et al., "Unsupervised representation learning by predicting image rotations", 2018, arXiv 1803.07728;
    one turn of an image at a time, by its position, and not all four in a batch.

    Args:
        model: the network.
        target: labels or rotation.
        augment: the augmentation of training images: shift and contrast.
        seed: the seed of the training.
        train: the training dataset, with `images` and, for the target labels, `labels`.
        val: the validation dataset, with the same columns.
    """

    judge = "val/accuracy"  # the loss rises where a network is too sure of itself, right or wrong

    def __init__(
        self, model: Teacher, target: str, augment: Augment, seed: int, train: IndexedDataset, val: IndexedDataset
    ) -> None:
        self.model, self.target, self.augment, self.seed = model, target, augment, seed
        self.train, self.val = train, val
        self.modules: dict[str, nn.Module] = {"teacher": model}
        self.phases = (Phase("teacher", self.loss),)

    def loss(self, batch: Batch) -> Losses:
        """Return the cross-entropy and the accuracy."""
        numbers = random_numbers(self.seed, "teacher/augment", batch.positions.tolist(), 0, 4)[1]
        down, right, contrast, turn = to_device(numbers.astype(np.float32), batch.data["images"].device).T
        reach = self.augment.shift
        offsets = [(each * (2 * reach + 1)).floor().long().clamp(max=2 * reach) - reach for each in (down, right)]
        x = shifted(to_network(batch.data["images"]), *offsets)
        factor = 1 + self.augment.contrast * (2 * contrast - 1)
        found = self._scores(batch, x * factor[:, None, None, None], (turn * TURNS).long().clamp(max=TURNS - 1))
        return {name: values.mean() for name, values in found.items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return cross-entropy and accuracy of each image, (N,), not augmented; its rotation follows from its row."""
        x = to_network(batch.data["images"])
        return self._scores(batch, x, to_device(batch.positions % TURNS, x.device))

    def _scores(self, batch: Batch, x: Tensor, turns: Tensor) -> dict[str, Tensor]:
        x, labels = (turned(x, turns), turns) if self.target == "rotation" else (x, batch.data["labels"])
        logits = self.modules["teacher"](x).float()
        accuracy = (logits.argmax(dim=1) == labels).float()
        return {"loss": functional.cross_entropy(logits, labels, reduction="none"), "accuracy": accuracy}
