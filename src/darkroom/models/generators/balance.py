"""Images of rare classes in training more often than the others."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darkroom.errors import DarkroomError
from darkroom.rng import order
from darkroom.training.data import Positions
from darkroom.training.recipe import IndexedDataset


class Balanced:
    """Rows in an order in which images of class c come r_c = (n_max / n_c)^power times as often as the largest class's.

    n_c is the number of images of the class. In each epoch of the order an image comes r_c times, rounded down, and so
    many images of the class once more that they come r_c times on average. Images without a class come once.

    Source: repeat factors of Gupta et al., "LVIS", 2019, arXiv 1908.03195, with the largest class in place of a
    threshold; the power 1/2 is of Mahajan et al., 2018, arXiv 1805.00932.

    Args:
        rows: the data set.
        labels: the class of each row, null where it has none.
        power: 0: all images equally often; 1: all classes.

    Raises:
        DarkroomError: there are fewer than two classes.
    """

    def __init__(self, rows: IndexedDataset, labels: pa.ChunkedArray, power: float) -> None:
        self._rows = rows
        classes = labels.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
        numbers, counts = np.unique(classes[classes >= 0], return_counts=True)
        if len(numbers) < 2:
            raise DarkroomError(
                "`train_generator.dit.balance` is of classes, and the images have "
                f"{'one' if len(numbers) else 'none'}: set it to 0.0, or give the source labels."
            )
        found = [np.flatnonzero(classes < 0)]
        for number, count in zip(numbers, counts, strict=True):
            found.append(repeated(np.flatnonzero(classes == number), (counts.max() / count) ** power))
        self.sequence = np.concatenate(found).astype(np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> Mapping[str, Any]:
        """Return what the data set returns."""
        return self._rows.__getitems__(rows, positions)

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows."""
        return self._rows.keys(rows)

    def order(self, seed: int, positions: Positions) -> NDArray[np.int64]:
        """Return which row stands at each position of the endless sequence."""
        return self.sequence[order(seed, len(self.sequence), positions)]

    def prefetch(self, seed: int, position: int) -> None:
        """Fetch nothing: latents lie here."""


def repeated(rows: NDArray[np.int64], times: float) -> NDArray[np.int64]:
    """Return rows so many times on average: each as often, rounded down, and some, evenly spaced, once more."""
    whole = int(times)
    rest = round((times - whole) * len(rows))
    return np.concatenate([np.repeat(rows, whole), rows[np.arange(rest) * len(rows) // max(1, rest)]])
