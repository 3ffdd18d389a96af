"""Many files open for reading at any place, in any process."""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_OPEN = 128  # files open at once, below the usual limit of 1024 a process with several readers
_TRIES = 3  # times that a file may be gone between being located and being opened


class _Handle:
    """A descriptor that is closed when the last user lets go of it, so a thread may drop it while another reads."""

    def __init__(self, path: Path) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY)
        # Says to a cache that the file is in use. Some file systems have no locks, and no cache.
        with suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class OpenFiles:
    """Reads by (number of the file, offset, size), one `pread` each, which leaves no position to share or to lose.

    Files are opened when first read. A forked process may use it, and it can be pickled: the copy opens its own.

    Args:
        locate: returns the path of a file by its number, and fetches it before where it lies elsewhere; can be pickled.
        most: files open at once; None: as many as a process may well have.
    """

    def __init__(self, locate: Callable[[int], Path], most: int | None = None) -> None:
        self._locate, self._most = locate, most
        self._handles: dict[int, _Handle] = {}

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return `size` bytes, or fewer where the file ends. Raises OSError, or what `locate` raises."""
        handle = self._handles.get(number)
        if handle is None:
            handle = self._open(number)
            if len(self._handles) >= (self._most or _OPEN):
                self._handles = {}
            self._handles[number] = handle
        return os.pread(handle.descriptor, size, offset)

    def _open(self, number: int) -> _Handle:
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):  # another process made room in the cache
                return _Handle(self._locate(number))
        return _Handle(self._locate(number))

    def __getstate__(self) -> dict[str, Any]:
        return {"locate": self._locate, "most": self._most}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
