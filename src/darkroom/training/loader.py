"""Batches in the order that (seed, images seen) gives, read by this process or by workers."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from darkroom.device import to_device
from darkroom.errors import DarkroomError
from darkroom.rng import order
from darkroom.training.recipe import Batch, IndexedDataset, Ordered

_BLOCK = 64  # batches whose rows are found at once: much of the work does not grow with their number
_GRACE = 60  # seconds that a worker outlives a SIGTERM, while the training writes its checkpoint

Positions = NDArray[np.int64]


def rows_at(rows: IndexedDataset, seed: int, positions: Positions, shuffle: bool = True) -> NDArray[np.int64]:
    """Return which row stands at each position of the endless training sequence over `rows`."""
    if not shuffle:
        return positions % len(rows)
    if isinstance(rows, Ordered):
        return rows.order(seed, positions)
    return order(seed, len(rows), positions)


class _Draw(NamedTuple):
    """What a batch is made of: the rows, and where they stand in training."""

    rows: list[int]
    positions: Positions | None


class _Fetch(Dataset):
    """A data set in torch's terms: rows in, tensors out."""

    def __init__(self, rows: IndexedDataset, seed: int, shuffle: bool) -> None:
        self._rows, self._seed, self._shuffle = rows, seed, shuffle

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, draw: _Draw) -> dict[str, Tensor] | DarkroomError | OSError:
        try:
            return self._read(draw)
        except (DarkroomError, OSError) as error:
            if get_worker_info() is None:
                raise
            return error  # else torch wraps it in a traceback that says nothing more, and drops its errno

    def _read(self, draw: _Draw) -> dict[str, Tensor]:
        if draw.positions is not None and self._shuffle and isinstance(self._rows, Ordered):
            self._rows.prefetch(self._seed, int(draw.positions[0]))
        data = self._rows.__getitems__(draw.rows, draw.positions)
        return {name: value if isinstance(value, Tensor) else _tensor(value) for name, value in data.items()}


def _tensor(value: Any) -> Tensor:
    return torch.as_tensor(np.asarray(value))


def _same(batch: Any) -> Any:
    return batch


def _to(data: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: to_device(value, device) for name, value in data.items()}


def _leave_signals(worker: int) -> None:
    """Let a signal that reaches every process end a worker with the training and not before it.

    Ctrl-C on a terminal and a scheduler's SIGTERM do. A worker that nobody ends goes by itself a while after.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(_GRACE) and None)


def _load(
    rows: IndexedDataset, seed: int, draws: Sequence[_Draw], workers: int, device: torch.device, shuffle: bool = True
) -> DataLoader:
    return DataLoader(
        _Fetch(rows, seed, shuffle),
        batch_sampler=draws,  # type: ignore[arg-type]  # torch wants lists of rows, and hands on what it is given
        collate_fn=_same,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=False,
        worker_init_fn=_leave_signals,
    )


class _RandomNumbers(Sequence[_Draw]):
    """The rows of each batch, computed on demand: nothing grows with the length of the training."""

    def __init__(
        self, rows: IndexedDataset, seed: int, start: int, stop: int, batch: int, rank: int, count: int, shuffle: bool
    ) -> None:
        self._data, self._seed, self._start, self._stop, self._batch = rows, seed, start, stop, batch
        self._shuffle = shuffle
        self._share = batch // count  # consecutive images of each batch that a process takes
        self._offset = rank * self._share
        self._block = -1
        self._rows: np.ndarray = np.empty((0, self._share), dtype=np.int64)

    def __len__(self) -> int:
        return (self._stop - self._start) // self._batch

    def __getitem__(self, number: Any) -> Any:
        if number >= len(self):
            raise IndexError(number)
        block, place = divmod(number, _BLOCK)
        if block != self._block:
            numbers = range(block * _BLOCK, min((block + 1) * _BLOCK, len(self)))
            positions = np.stack([self.positions(each) for each in numbers])
            rows = rows_at(self._data, self._seed, positions.reshape(-1), self._shuffle)
            self._block, self._rows = block, rows.reshape(positions.shape)
        return _Draw(self._rows[place].tolist(), self.positions(number))

    def positions(self, number: int) -> Positions:
        first = self._start + number * self._batch + self._offset
        return np.arange(first, first + self._share)


def training_batches(
    rows: IndexedDataset,
    seed: int,
    start: int,
    stop: int,
    batch: int,
    workers: int,
    device: torch.device,
    rank: int = 0,
    count: int = 1,
    shuffle: bool = True,
) -> Iterator[Batch]:
    """Yield the batches of images `start` to `stop` of the endless sequence over `rows`, shuffled or in their order.

    Of each batch, process `rank` of `count` gets its part of consecutive images: which image stands where does not
    depend on the number of processes.
    """
    draws = _RandomNumbers(rows, seed, start, stop, batch, rank, count, shuffle)
    for number, data in enumerate(_load(rows, seed, draws, workers, device, shuffle)):
        if isinstance(data, Exception):
            raise data
        yield Batch(draws.positions(number), _to(data, device))


def validation_batches(
    rows: IndexedDataset, batch: int, device: torch.device, rank: int = 0, count: int = 1
) -> Iterator[Batch]:
    """Yield all rows in their order, not augmented; a row's position is its number, so its noise is always the same.

    Of `count` processes, each takes every `count`-th batch.
    """
    numbers = np.arange(len(rows))
    draws = [_Draw(numbers[at : at + batch].tolist(), None) for at in range(0, len(rows), batch)][rank::count]
    for draw, data in zip(draws, _load(rows, 0, draws, 0, device), strict=True):
        yield Batch(np.array(draw.rows), _to(data, device))
