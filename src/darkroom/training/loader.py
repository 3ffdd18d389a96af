"""Load batches in the order given by (seed, images seen), in this process or in workers."""

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import tee
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from darkroom.device import to_device
from darkroom.errors import DarkroomError
from darkroom.rng import order
from darkroom.training.data import with_means
from darkroom.training.recipe import Batch, IndexedDataset, Ordered

_BLOCK = 64  # batches whose rows are computed together: much of the work does not depend on their number
GROUPS = "groups"  # value of `training.shuffle`
_GRACE = 60  # seconds that a worker outlives a SIGTERM, while the training writes its checkpoint

Positions = NDArray[np.int64]


class GroupOrder:
    """An endless sequence of rows in which groups are equally frequent, and the rows of each group, too.

    With G groups, each epoch of G positions has one row of each group, in a new random order. Epoch e reads row e mod n
    of a group of n rows, whose order is drawn once.

    Raises:
        DarkroomError: no two rows are of one group.
    """

    def __init__(self, seed: int, groups: NDArray[np.int64]) -> None:
        """`groups` has a number for each row, (N,), the same for rows of one group."""
        shuffled = order(seed, len(groups), np.arange(len(groups)))
        _, numbers, self._sizes = np.unique(groups, return_inverse=True, return_counts=True)
        if len(self._sizes) == len(groups) > 1:
            raise DarkroomError(
                "`shuffle` of this training is groups, but no two images are of one group: set it to true, or set "
                "`ingest.group` and run `dvc repro` again."
            )
        self._rows = shuffled[np.argsort(numbers[shuffled], kind="stable")]
        self._firsts = np.cumsum(self._sizes) - self._sizes
        self._seed = seed

    def __call__(self, positions: Positions) -> NDArray[np.int64]:
        """Return the row at each position."""
        count = len(self._sizes)
        group = order(self._seed, count, positions)
        return self._rows[self._firsts[group] + positions // count % self._sizes[group]]


def row_order(rows: IndexedDataset, seed: int, shuffle: bool | str = True) -> Callable[[Positions], NDArray[np.int64]]:
    """Return the function from positions of the endless training sequence over `rows` to row numbers.

    `shuffle` is the key of this name: true, false or "groups".
    """
    if not shuffle:
        return lambda positions: positions % len(rows)
    if shuffle == GROUPS and hasattr(rows, "groups"):  # rendered scenes have none
        return GroupOrder(seed, rows.groups)
    return partial(rows.order, seed) if isinstance(rows, Ordered) else partial(order, seed, len(rows))


class _Draw(NamedTuple):
    """The rows of a batch, and their positions in the training sequence."""

    rows: list[int]
    positions: Positions | None


class _Fetch(Dataset):
    """A data set for torch's loader: rows in, tensors out."""

    def __init__(self, rows: IndexedDataset, seed: int, shuffle: bool | str) -> None:
        self._rows, self._seed, self._shuffle = rows, seed, shuffle

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, draw: _Draw) -> dict[str, Tensor] | DarkroomError | OSError:
        try:
            if draw.positions is not None and self._shuffle is True and isinstance(self._rows, Ordered):
                self._rows.prefetch(self._seed, int(draw.positions[0]))
            data = self._rows.__getitems__(draw.rows, draw.positions)
            return {name: torch.as_tensor(value) for name, value in data.items()}
        except (DarkroomError, OSError) as error:
            if get_worker_info() is None:
                raise
            return error  # otherwise torch wraps it in a longer traceback and drops its errno


def _same(batch: Any) -> Any:
    return batch


def _to(data: Mapping[str, Tensor], device: torch.device, codebook: Tensor | None) -> dict[str, Tensor]:
    return with_means({name: to_device(value, device) for name, value in data.items()}, codebook)


def _codebook(rows: IndexedDataset, device: torch.device) -> Tensor | None:
    """Return the codebook of stored codes on the device; None: the rows are not codes."""
    codebook = getattr(rows, "codebook", None)
    return None if codebook is None else to_device(codebook, device)


def _leave_signals(worker: int) -> None:
    """Make a worker ignore signals that reach every process, so that it ends with the training, not before.

    Ctrl-C on a terminal and a scheduler's SIGTERM reach all. A worker that is never ended exits by itself later.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(_GRACE) and None)


def _load(
    rows: IndexedDataset,
    seed: int,
    draws: Iterable[_Draw],
    workers: int,
    device: torch.device,
    shuffle: bool | str = True,
) -> DataLoader:
    return DataLoader(
        _Fetch(rows, seed, shuffle),
        batch_sampler=draws,  # type: ignore[arg-type]  # torch declares lists of rows, but passes any items on
        collate_fn=_same,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=False,
        worker_init_fn=_leave_signals,
    )


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
    shuffle: bool | str = True,
) -> Iterator[Batch]:
    """Yield the batches of images `start` to `stop` of the endless sequence over `rows`, in the order of `row_order`.

    Process `rank` of `count` gets its slice of consecutive images of each batch, so the position of an image does not
    depend on the number of processes.
    """
    codebook, share, row_of = _codebook(rows, device), batch // count, row_order(rows, seed, shuffle)
    firsts = range(start + rank * share, stop - batch + rank * share + 1, batch)

    def draws() -> Iterator[_Draw]:  # on demand: nothing grows with the length of the training
        for block in range(0, len(firsts), _BLOCK):
            positions = np.array(firsts[block : block + _BLOCK])[:, None] + np.arange(share)
            numbers = row_of(positions.reshape(-1)).reshape(positions.shape)
            yield from (_Draw(row.tolist(), at) for row, at in zip(numbers, positions, strict=True))

    ahead, current = tee(draws())  # workers read ahead
    for data, draw in zip(_load(rows, seed, ahead, workers, device, shuffle), current, strict=True):
        if isinstance(data, Exception):
            raise data
        assert draw.positions is not None  # training batches have positions
        yield Batch(draw.positions, _to(data, device, codebook))


def validation_batches(
    rows: IndexedDataset, batch: int, device: torch.device, rank: int = 0, count: int = 1
) -> Iterator[Batch]:
    """Yield all rows in their order, not augmented; a row's position is its number, so its noise is always the same.

    Of `count` processes, each takes every `count`-th batch.
    """
    numbers, codebook = np.arange(len(rows)), _codebook(rows, device)
    draws = [_Draw(numbers[at : at + batch].tolist(), None) for at in range(0, len(rows), batch)][rank::count]
    for draw, data in zip(draws, _load(rows, 0, draws, 0, device), strict=True):
        yield Batch(np.array(draw.rows), _to(data, device, codebook))
