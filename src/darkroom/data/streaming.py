"""An order for data that lie elsewhere: shards are taken a few at a time, and rows are shuffled among those.

In each epoch the shards are permuted and cut into windows of a few; the rows of a window are permuted. Which row stands
at a position is a pure function of (seed, images of each shard, window, position): there is no buffer to fill or to
lose, a training resumes at any position, and a shard is needed in one window of an epoch only.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from darkroom.random import derive, order

# Shards that are shuffled together. More of them mix better, and two windows must fit into the local cache: 16 shards
# of 10,000 images of 256 pixels take about 5 GB. The order depends on it, so it is no matter of the machine.
WINDOW = 8
_EPOCHS = 4  # whose arrangement is kept

Numbers = NDArray[np.int64]


class _Epoch(NamedTuple):
    """Where everything stands in one epoch.

    shards: in their order; edges: where each window begins among them, (W + 1,); starts: where each shard begins among
    the epoch's positions, (S + 1,).
    """

    shards: Numbers
    edges: Numbers
    starts: Numbers


class StreamingOrder:
    """The order over shards with `sizes` images, of which row 0 is the first of the first shard.

    Time and memory do not grow with the number of images; those of a new epoch do with the number of shards: some 20 ms
    for 40,000.
    """

    def __init__(self, sizes: Sequence[int], window: int = WINDOW) -> None:
        if window < 1:
            raise ValueError(f"a window holds at least one shard, not {window}")
        self._sizes = np.asarray(sizes, dtype=np.int64)
        self._firsts = np.cumsum(self._sizes) - self._sizes
        self.rows = int(self._sizes.sum())
        self._windows = -(-len(self._sizes) // window)
        self._arranged: dict[tuple[int, int], _Epoch] = {}

    def order(self, seed: int, positions: Sequence[int] | Numbers) -> Numbers:
        """Return which row stands at each position of the endless sequence, in each epoch every row once.

        Raises:
            ValueError: there are no rows, or a position is negative.
        """
        flat = np.asarray(positions, dtype=np.int64)
        if not self.rows or (flat.size and flat.min() < 0):
            raise ValueError("an order needs at least one row, and positions from 0 on")
        rows = np.empty(flat.shape, dtype=np.int64)
        epochs = flat // self.rows
        for epoch in np.unique(epochs).tolist():
            found = epochs == epoch
            rows[found] = self._inside(seed, epoch, flat[found] - epoch * self.rows)
        return rows

    def upcoming(self, seed: int, position: int) -> list[int]:
        """Return the shards of the window at a position, then those of the window after it, the first needed first."""
        epoch, inside = divmod(position, self.rows)
        now = self._window(seed, epoch, self._at(seed, epoch, np.array([inside]))[0])
        return list(dict.fromkeys(now + self._window(*self._after(seed, epoch, inside))))

    def _inside(self, seed: int, epoch: int, places: Numbers) -> Numbers:
        """Return the rows at some places of an epoch."""
        arranged = self._epoch(seed, epoch)
        rows = np.empty(places.shape, dtype=np.int64)
        windows = self._at(seed, epoch, places)
        for window in np.unique(windows).tolist():
            found = windows == window
            begin, end = arranged.starts[arranged.edges[[window, window + 1]]].tolist()
            # A permutation of its own for each window of each epoch: `order` counts epochs by position // size.
            turn = (epoch * self._windows + window) * (end - begin)
            mixed = begin + order(derive(seed, "streaming/rows"), end - begin, turn + places[found] - begin)
            shard = np.searchsorted(arranged.starts, mixed, side="right") - 1
            rows[found] = self._firsts[arranged.shards[shard]] + mixed - arranged.starts[shard]
        return rows

    def _at(self, seed: int, epoch: int, places: Numbers) -> Numbers:
        """Return the windows that some places of an epoch lie in."""
        arranged = self._epoch(seed, epoch)
        return np.searchsorted(arranged.starts[arranged.edges], places, side="right") - 1

    def _window(self, seed: int, epoch: int, window: int) -> list[int]:
        arranged = self._epoch(seed, epoch)
        return arranged.shards[arranged.edges[window] : arranged.edges[window + 1]].tolist()

    def _after(self, seed: int, epoch: int, inside: int) -> tuple[int, int, int]:
        """Return seed, epoch and number of the window after the one at a place of an epoch."""
        window = int(self._at(seed, epoch, np.array([inside]))[0]) + 1
        return (seed, epoch, window) if window < self._windows else (seed, epoch + 1, 0)

    def _epoch(self, seed: int, epoch: int) -> _Epoch:
        if (found := self._arranged.get((seed, epoch))) is None:
            if len(self._arranged) >= _EPOCHS:
                self._arranged = {}
            found = self._arranged[seed, epoch] = self._arrange(seed, epoch)
        return found

    def _arrange(self, seed: int, epoch: int) -> _Epoch:
        count = len(self._sizes)
        shards = order(derive(seed, "streaming/shards"), count, epoch * count + np.arange(count))
        edges = np.arange(self._windows + 1) * count // self._windows  # as even as can be
        return _Epoch(shards, edges, np.concatenate([[0], np.cumsum(self._sizes[shards])]))
