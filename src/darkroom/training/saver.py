"""When checkpoints are written, and by whom: a thread beside the training, as often as it costs next to nothing."""

# No effect on any output: says when a checkpoint is written, and not what

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from darkroom.errors import DarkroomError
from darkroom.params.run import Run
from darkroom.training import checkpoint, guards
from darkroom.training.checkpoint import Tensors
from darkroom.training.guards import is_disk_full, require_disk

SHARE = 0.01  # of the training's time that saving may take, as measured; half of what is promised
_SHORTEST = 15.0  # seconds between two checkpoints, at least, where `max_lost_seconds` allows
_PATIENCE = 300.0  # seconds that the end of a training waits for a copy elsewhere
_GUESS = 2e9  # bytes a second that a first checkpoint is taken to cost


class Saver:
    """Writes the checkpoints of a training in a thread of its own, so that the training waits for a copy alone.

    The cadence adapts: a checkpoint costs the training's wait for the copy and the thread's CPU time, and the next one
    comes when that is `SHARE` of the time since; but never so late that a kill could cost more than
    `run.max_lost_seconds`, the writing included. `after` copies a checkpoint elsewhere, in a thread of its own: as many
    as it manages, the last one in any case. What it raises is printed and stops nothing.
    """

    def __init__(self, state: Path, run: Run, size: int, after: Callable[[Path], None] | None = None) -> None:
        self._state, self._run, self._after = state, run, after
        self._thread: threading.Thread | None = None
        self._copying: threading.Thread | None = None
        self._copies: dict[str, Tensors] = {}
        self._held: Path | None = None  # the checkpoint that is being copied elsewhere
        self._error: BaseException | None = None
        self._cost = size / _GUESS  # seconds taken from the training by one checkpoint
        self._written = size / _GUESS  # seconds that writing one took
        self._at = time.monotonic()
        self.saved = -1  # images of the newest checkpoint begun

    @property
    def interval(self) -> float:
        """Seconds from one checkpoint to the next."""
        cheap = max(self._cost / SHARE, _SHORTEST)
        return min(cheap, max(self._run.max_lost_seconds - self._written, self._run.max_lost_seconds / 2))

    def due(self) -> bool:
        """Return whether it is time for a checkpoint; a busy writer puts it off while little is at risk."""
        waited = time.monotonic() - self._at
        if waited < self.interval:
            return False
        return not self._busy() or waited >= self._run.max_lost_seconds

    def save(self, images: int, groups: Mapping[str, Tensors], metadata: Mapping[str, Any], wait: bool) -> None:
        """Write a checkpoint: beside the training, or at once where `wait` is true.

        A full disk is reported and tried again later while the training goes on; the checkpoints before stay.

        Raises:
            OSError: the disk is full, and `wait` is true.
        """
        began = time.monotonic()
        self.finish()
        self._at, self.saved = began, images
        needed = checkpoint.size(groups)
        free = guards.free_memory() + checkpoint.size(self._copies)  # whose memory is taken again
        beside = not wait and free > 2 * needed
        if beside:
            groups = self._copies = checkpoint.copied(groups, self._copies)
        stall = time.monotonic() - began
        self._thread = threading.Thread(target=self._write, args=(images, groups, metadata, needed, stall), daemon=True)
        self._thread.start()
        if not beside:
            self.finish(raises=wait)
            self._cost = time.monotonic() - began

    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _write(
        self, images: int, groups: dict[str, Tensors], metadata: dict[str, Any], needed: int, stall: float
    ) -> None:
        began, worked = time.monotonic(), time.thread_time()
        try:
            require_disk(self._state, needed, "a checkpoint")
            copying = self._copying is not None and self._copying.is_alive()
            held = self._held if copying else None
            folder = checkpoint.save(self._state, images, groups, metadata, self._run.keep, held)
        except BaseException as error:
            self._error = error
            return
        self._written = time.monotonic() - began
        self._cost = stall + time.thread_time() - worked
        if self._after is not None and (self._copying is None or not self._copying.is_alive()):
            self._held = folder  # a place that is slow gets fewer checkpoints, and keeps nobody waiting
            self._copying = threading.Thread(target=self._copy, args=(folder, self._after), daemon=True)
            self._copying.start()

    def _copy(self, folder: Path, after: Callable[[Path], None]) -> None:
        try:
            after(folder)
        except DarkroomError as error:
            print(f"{folder.name} is written here, and could not be copied: {error}")

    def close(self) -> None:
        """Let the newest checkpoint be copied elsewhere, too, and wait for it, but not for ever."""
        self.finish()
        if self._after is None:
            return
        newest = checkpoint.folders(self._state)[-1:]
        if self._copying is not None:
            self._copying.join(_PATIENCE)
            if self._copying.is_alive():
                print(f"a checkpoint is still being copied after {_PATIENCE} s, and stays behind unfinished")
                return
        if newest and newest[0] != self._held:
            self._copying = threading.Thread(target=self._copy, args=(newest[0], self._after), daemon=True)
            self._copying.start()
            self._copying.join(_PATIENCE)

    def finish(self, raises: bool = False) -> None:
        """Wait until the thread has written what it is writing.

        Raises:
            Exception: what went wrong in the thread; a full disk only where `raises` is true.
        """
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        error, self._error = self._error, None
        if error is None:
            return
        if raises or not is_disk_full(error):
            raise error
        print(
            f"no checkpoint of image {self.saved:,}: the disk is full ({error}). The training goes on and tries again; "
            f"the checkpoints before stay in {self._state}. Free some space."
        )
        self.saved = -1
