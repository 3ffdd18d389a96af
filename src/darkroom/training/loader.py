"""Batches in the order that (seed, images seen) gives, read by this process or by workers."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from darkroom.random import order
from darkroom.training.recipe import Batch, Rows

_BLOCK = 64  # batches whose rows are found at once: much of the work does not grow with their number
_GRACE = 60  # seconds that a worker outlives a SIGTERM, while the training writes its checkpoint


class _Fetch(Dataset):
    """A data set in torch's terms: rows in, tensors out."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, rows: Sequence[int]) -> dict[str, Tensor]:
        return {name: torch.as_tensor(np.asarray(value)) for name, value in self._rows.__getitems__(rows).items()}


def _same(batch: Any) -> Any:
    return batch


def _to(data: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: value.to(device, non_blocking=True) for name, value in data.items()}


def _leave_signals(worker: int) -> None:
    """Let a signal that reaches every process end a worker with the training and not before it.

    Ctrl-C on a terminal and a scheduler's SIGTERM do. A worker that nobody ends goes by itself a while after.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(_GRACE) and None)


def _load(rows: Rows, lists: Sequence[list[int]], workers: int, device: torch.device) -> DataLoader:
    return DataLoader(
        _Fetch(rows),
        batch_sampler=lists,
        collate_fn=_same,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=False,
        worker_init_fn=_leave_signals,
    )


class _Lists(Sequence[list[int]]):
    """The row numbers of each batch, computed when asked for: nothing grows with the length of the training."""

    def __init__(self, seed: int, size: int, start: int, stop: int, batch: int, rank: int, count: int) -> None:
        self._seed, self._size, self._start, self._stop, self._batch = seed, size, start, stop, batch
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
            rows = order(self._seed, self._size, positions.reshape(-1))
            self._block, self._rows = block, rows.reshape(positions.shape)
        return self._rows[place].tolist()

    def positions(self, number: int) -> np.ndarray:
        first = self._start + number * self._batch + self._offset
        return np.arange(first, first + self._share)


def training_batches(
    rows: Rows,
    seed: int,
    start: int,
    stop: int,
    batch: int,
    workers: int,
    device: torch.device,
    rank: int = 0,
    count: int = 1,
) -> Iterator[Batch]:
    """Yield the batches of images `start` to `stop` of the endless shuffled sequence over `rows`.

    Of each batch, process `rank` of `count` gets its share of consecutive images: which image stands where does not
    depend on the number of processes.
    """
    lists = _Lists(seed, len(rows), start, stop, batch, rank, count)
    for number, data in enumerate(_load(rows, lists, workers, device)):
        yield Batch(lists.positions(number), _to(data, device))


def validation_batches(rows: Rows, batch: int, device: torch.device, rank: int = 0, count: int = 1) -> Iterator[Batch]:
    """Yield all rows in their order; a row's position is its number, so its noise is the same each time.

    Of `count` processes, each takes every `count`-th batch.
    """
    numbers = np.arange(len(rows))
    lists = [numbers[at : at + batch].tolist() for at in range(0, len(rows), batch)][rank::count]
    for chosen, data in zip(lists, _load(rows, lists, 0, device), strict=True):
        yield Batch(np.array(chosen), _to(data, device))
