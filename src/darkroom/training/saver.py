"""Write checkpoints in a thread next to the training, as often as the cost stays negligible."""

# No effect on any output: decides when a checkpoint is written, not what it holds

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

SHARE = 0.01  # maximum fraction of the training's time for saving, as measured; half of the documented one
_SHORTEST = 15.0  # minimum seconds between two checkpoints, if `max_lost_seconds` allows
_PATIENCE = 300.0  # seconds that the end of a training waits for a copy elsewhere
_GUESS = 2e9  # assumed bytes per second of the first checkpoint


class Saver:
    """Write the checkpoints of a training in a thread, so that the training only waits for a copy in memory.

    The interval adapts: a checkpoint costs the training's wait for the copy and the thread's CPU time, and the next one
    is due when that is the fraction `SHARE` of the time since; but never so late that a kill could cost more than
    `run.max_lost_seconds`, writing included. `after` copies checkpoints elsewhere in another thread: as many as it can,
    and always the last one. Its errors are printed and stop nothing.
    """

    def __init__(self, state: Path, run: Run, size: int, after: Callable[[Path], None] | None = None) -> None:
        self._state, self._run, self._after = state, run, after
        self._thread: threading.Thread | None = None
        self._copying: threading.Thread | None = None
        self._copies: dict[str, Tensors] = {}
        self._protected: Path | None = None  # the checkpoint that is being copied elsewhere
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
        """Return whether a checkpoint is due; a busy writer postpones it while little is at risk."""
        waited = time.monotonic() - self._at
        if waited < self.interval:
            return False
        return not _is_running(self._thread) or waited >= self._run.max_lost_seconds

    def save(self, images: int, groups: Mapping[str, Tensors], metadata: Mapping[str, Any], wait: bool) -> None:
        """Write a checkpoint: in the background, or at once if `wait` is true.

        A full disk is reported and retried later while the training goes on; older checkpoints stay.

        Raises:
            OSError: the disk is full, and `wait` is true.
        """
        began = time.monotonic()
        self.finish()
        self._at, self.saved = began, images
        needed = checkpoint.size(groups)
        free = guards.free_memory() + checkpoint.size(self._copies)  # that memory is reused
        background = not wait and free > 2 * needed
        if background:
            groups = self._copies = checkpoint.copied(groups, self._copies)
        stall = time.monotonic() - began
        self._thread = threading.Thread(target=self._write, args=(images, groups, metadata, needed, stall), daemon=True)
        self._thread.start()
        if not background:
            self.finish(raises=wait)
            self._cost = time.monotonic() - began

    def _write(
        self, images: int, groups: dict[str, Tensors], metadata: dict[str, Any], needed: int, stall: float
    ) -> None:
        began, worked = time.monotonic(), time.thread_time()
        try:
            require_disk(self._state, needed, "a checkpoint")
            protected = self._protected if _is_running(self._copying) else None
            folder = checkpoint.save(self._state, images, groups, metadata, self._run.keep, protected)
        except BaseException as error:
            self._error = error
            return
        self._written = time.monotonic() - began
        self._cost = stall + time.thread_time() - worked
        if self._after is not None and not _is_running(self._copying):
            self._protected = folder  # a slow place gets fewer checkpoints, and delays nothing
            self._copying = threading.Thread(target=self._copy, args=(folder, self._after), daemon=True)
            self._copying.start()

    def _copy(self, folder: Path, after: Callable[[Path], None]) -> None:
        try:
            after(folder)
        except DarkroomError as error:
            print(f"{folder.name} was written here, but could not be copied: {error}")

    def close(self) -> None:
        """Copy the newest checkpoint elsewhere, too, and wait for it for a limited time."""
        self.finish()
        if self._after is None:
            return
        newest = checkpoint.folders(self._state)[-1:]
        if self._copying is not None:
            self._copying.join(_PATIENCE)
            if self._copying.is_alive():
                print(f"the copy of a checkpoint is not finished after {_PATIENCE} s and is left incomplete")
                return
        if newest and newest[0] != self._protected:
            self._copying = threading.Thread(target=self._copy, args=(newest[0], self._after), daemon=True)
            self._copying.start()
            self._copying.join(_PATIENCE)

    def finish(self, raises: bool = False) -> None:
        """Wait until the thread has finished writing.

        Raises:
            Exception: the error of the thread; for a full disk only if `raises` is true.
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
            f"cannot write the checkpoint of image {self.saved:,}: the disk is full ({error}). Free some space. The "
            f"training goes on and tries again; older checkpoints stay in {self._state}."
        )
        self.saved = -1


def _is_running(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.is_alive()
