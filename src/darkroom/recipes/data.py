"""What recipes ask of a data set: the rows of the readers under the names that the losses use."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.data.catalog import Catalog
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError


def label_numbers(labels: Sequence[str | None], catalog: Catalog) -> NDArray[np.int64]:
    """Return the class number of each label, (N,), int64.

    Raises:
        DarkroomError: an image has no label.
    """
    if None in labels:
        raise DarkroomError(
            f"image {labels.index(None)} has no label, and this model is conditioned on labels: give its source labels."
        )
    return np.array([catalog.number(str(label)) for label in labels], dtype=np.int64)


class Images:
    """Stored images: `images` uint8 (N, C, H, W)."""

    def __init__(self, shards: ImageShards) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return len(self.shards)

    def __getitems__(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return the images of some rows."""
        return {"images": self.shards.__getitems__(rows)}

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows."""
        keys = self.shards.keys
        return [keys[row] for row in rows]


class LabelledImages(Images):
    """Stored images with their class numbers: `images` uint8 (N, C, H, W), `labels` int64 (N,)."""

    def __init__(self, shards: ImageShards, catalog: Catalog) -> None:
        super().__init__(shards)
        self.labels = label_numbers(shards.labels, catalog)

    def __getitems__(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return the images and class numbers of some rows."""
        return {"images": self.shards.__getitems__(rows), "labels": self.labels[list(rows)]}
