"""Datasets for recipes: the rows of the readers under the names that the losses use."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darkroom.data.reader import ImageShards
from darkroom.data.streaming import StreamingOrder
from darkroom.errors import DarkroomError
from darkroom.random import order, random_numbers

Positions = NDArray[np.int64]


class Numbering(Protocol):
    """Gives classes their numbers: the catalog, or `Classes`."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; a class's number is its place."""
        ...

    def number(self, label: str) -> int:
        """Return the number of a class."""
        ...


@dataclass(frozen=True)
class Classes:
    """The classes of some parts alone, so that other parts change no number."""

    classes: tuple[str, ...]

    @classmethod
    def of(cls, columns: Iterable[pa.ChunkedArray]) -> "Classes":
        """Return the classes that some columns of labels hold, in the order of their names."""
        names = {name for column in columns for name in column.unique().to_pylist()}
        return cls(tuple(sorted(name for name in names if name is not None)))

    def number(self, label: str) -> int:
        """Return the number of a class."""
        return self.classes.index(label)


def label_numbers(
    labels: Iterable[str | None] | pa.ChunkedArray,
    catalog: Numbering,
    keys_of: Callable[[list[int]], list[str]] | None = None,
    who: str = "this model",
    instead: str = "",
) -> NDArray[np.int64]:
    """Return the class number of each label, (N,), int64.

    Args:
        labels: of the images.
        catalog: gives classes their numbers.
        keys_of: gives the keys of some rows, for messages.
        who: needs the labels, for messages.
        instead: what a person can do to need none, for messages.

    Raises:
        DarkroomError: an image has no label, or one that the catalog has not.
    """
    column = labels if isinstance(labels, pa.ChunkedArray) else pa.chunked_array([pa.array(labels, pa.string())])
    if column.null_count:
        row = column.is_null().index(True).as_py()
        first = keys_of([row])[0] if keys_of else f"row {row}"
        raise DarkroomError(
            f"{column.null_count:,} of {len(column):,} images have no label, the first is {first}, and {who} needs "
            f"labels: {instead and instead + ', '}give their source labels, or set `ingest.rules.label_missing` to "
            "quarantine."
        )
    # A label is looked up once, however many images have it.
    encoded = column.combine_chunks().dictionary_encode()
    numbers = np.array([catalog.number(label) for label in encoded.dictionary.to_pylist()], dtype=np.int64)
    return numbers[encoded.indices.to_numpy()] if len(column) else np.empty(0, dtype=np.int64)


def mirrored(
    seed: int, mirrors: NDArray[np.bool_], rows: Sequence[int], positions: Positions | None
) -> NDArray[np.bool_]:
    """Return which images are seen mirrored, (N,): half of those whose mirror image is as true, by seed and position.

    Args:
        seed: of the training.
        mirrors: for every row, whether its mirror image is as true.
        rows: the rows that are read.
        positions: where they stand in the training sequence; None: nothing is mirrored.
    """
    chosen = mirrors[list(rows)]
    if positions is None or not chosen.any():
        return np.zeros(len(rows), dtype=bool)
    return chosen & (random_numbers(seed, "mirror", positions.tolist(), 0, 1)[1][:, 0] < 0.5)


class Images:
    """Stored images: `images` uint8 (N, C, H, W). `seed` is the training's: which images are mirrored follows from it.

    Where shards lie behind URLs, they are read a few at a time (`StreamingOrder`), and fetched before they are needed.
    """

    def __init__(self, shards: ImageShards, seed: int = 0) -> None:
        self.shards, self.seed = shards, seed
        self._streaming = StreamingOrder([shard.images for shard in shards.shards]) if shards.remote else None
        self._fetched: list[int] = []

    def __len__(self) -> int:
        return len(self.shards)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the images of some rows, some of them mirrored where positions are given."""
        images = self.shards.__getitems__(rows)
        flipped = mirrored(self.seed, self.shards.mirrors, rows, positions)
        if flipped.any():
            images[flipped] = images[flipped][..., ::-1]
        return {"images": images}

    def order(self, seed: int, positions: Positions) -> NDArray[np.int64]:
        """Return which row stands at each position of the endless sequence."""
        if self._streaming is not None:
            return self._streaming.order(seed, positions)
        return order(seed, len(self), positions)

    def prefetch(self, seed: int, position: int) -> None:
        """Begin to fetch the shards of the window at a position and of the one after it."""
        if self._streaming is not None and (numbers := self._streaming.upcoming(seed, position)) != self._fetched:
            self._fetched = numbers
            self.shards.prefetch([self.shards.shards[number] for number in numbers])

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, by which a person finds the images."""
        return self.shards.keys_of(rows)


class LabelledImages(Images):
    """Stored images with their class numbers: `images` uint8 (N, C, H, W), `labels` int64 (N,).

    who, instead: see `label_numbers`.
    """

    def __init__(
        self, shards: ImageShards, catalog: Numbering, seed: int = 0, who: str = "this model", instead: str = ""
    ) -> None:
        super().__init__(shards, seed)
        self.classes = catalog.classes
        self.labels = label_numbers(shards.label_column, catalog, shards.keys_of, who, instead)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the images and class numbers of some rows."""
        return {**super().__getitems__(rows, positions), "labels": self.labels[list(rows)]}
