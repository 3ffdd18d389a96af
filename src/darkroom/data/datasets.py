"""The images and latents of a split as datasets of torch, for code outside of Darkroom."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from darkroom.data.catalog import load_catalog
from darkroom.data.latent_file import to_float32
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards

Split = Literal["train", "val", "test"]


class Images(Dataset[dict[str, Any]]):
    """The images of a split, for a DataLoader.

    An item: image, uint8 (C, H, W); label, the number of its class, -1 without; caption and key, text.

    Attributes:
        classes: names of the classes.
        labels: number of the class of each image, -1 without.
    """

    def __init__(self, split: Split, root: Path) -> None:
        catalog = load_catalog(root / "data/catalog", root / "data/shards")
        self._shards = ImageShards.open_parts(list(catalog.parts), split, root / "data/shards")
        self.classes = list(catalog.classes)
        numbers = {name: number for number, name in enumerate(self.classes)}
        self.labels = [-1 if label is None else numbers[label] for label in self._shards.labels]

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return several items, which is faster than one by one; a DataLoader calls it."""
        images = torch.from_numpy(self._shards.__getitems__(rows))
        texts = zip(self._shards.some("caption", rows), self._shards.keys_of(rows), strict=True)
        return [
            {"image": image, "label": self.labels[row], "caption": caption or "", "key": key}
            for row, image, (caption, key) in zip(rows, images, texts, strict=True)
        ]


class Latents(Dataset[dict[str, Tensor]]):
    """The latents of a split, for a DataLoader.

    An item: mean and, unless latents are points, logvar, float32 (C, h, w); or codes, int64 (h, w).
    """

    def __init__(self, split: Split, root: Path) -> None:
        catalog = load_catalog(root / "data/catalog", None)
        self._shards = LatentShards.open_parts(list(catalog.parts), split, root / "data/latents")
        catalog.require_parts(self._shards.sources)

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Tensor]]:
        """Return several items, which is faster than one by one; a DataLoader calls it."""
        stored = self._shards.__getitems__(np.asarray(rows)).items()
        arrays = {name: values.astype(np.int64) if name == "codes" else to_float32(values) for name, values in stored}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}
        return [{name: values[at] for name, values in tensors.items()} for at in range(len(rows))]
