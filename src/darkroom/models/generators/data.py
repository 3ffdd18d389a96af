"""What generators are trained on: stored latents or codes with the classes of their images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.data.catalog import Catalog
from darkroom.data.latents import LatentShards
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.training.data import Positions, label_numbers, mirrored
from darkroom.training.recipe import IndexedDataset


class LabelledLatents:
    """Stored latents with their class numbers, `labels` int64 (N,).

    Latents are `mean` and `logvar` (N, C, H, W), or `mean` alone, float32 or bfloat16, as stored: they are widened on
    the device, where z is sampled; or `codes` int32 (N, H, W). Of the rows whose mirror image was encoded too, half are
    its latents in training. `seed` is the training's.
    """

    def __init__(self, shards: LatentShards, catalog: Catalog, seed: int = 0) -> None:
        self.shards, self.seed = shards, seed
        self.labels = label_numbers(shards.label_column, catalog, shards.keys_of, "`train_generator`")

    def __len__(self) -> int:
        return len(self.shards)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the latents and class numbers of some rows, some of them mirrored where positions are given."""
        stored = self.shards.__getitems__(rows, mirrored(self.seed, self.shards.mirrors, rows, positions))
        tensors = {name: _tensor(value, self.shards.form) for name, value in stored.items()}
        return {**tensors, "labels": self.labels[list(rows)]}

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, by which a person finds the images."""
        return self.shards.keys_of(rows)


def _tensor(stored: NDArray[Any], form: str) -> Tensor:
    """Return stored elements as a tensor: NumPy holds a bfloat16 as its 16 bits, and torch indexes by no uint16."""
    if form == "codes":
        return torch.from_numpy(stored.astype(np.int32, copy=False))
    tensor = torch.from_numpy(stored)
    return tensor.view(torch.bfloat16) if stored.dtype == np.uint16 else tensor


@dataclass(frozen=True)
class GeneratorData:
    """What a generator is built for.

    train, val: the latents that it is trained and validated on.
    latents: the shards of the train split, with their statistics, and their codebook where they are codes.
    tokenizer: that of the latents, on the training device.
    catalog: the classes.
    """

    train: IndexedDataset
    val: IndexedDataset
    latents: LatentShards
    tokenizer: Tokenizer
    catalog: Catalog
