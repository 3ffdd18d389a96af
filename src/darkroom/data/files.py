"""Reads many files at any offset, from any process."""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_OPEN = 128  # files open at once: several readers stay below the usual limit of 1024 a process
_TRIES = 3  # attempts to open a file that another process may remove after it was located


class _Handle:
    """A file descriptor that is closed with its last reference, so a thread may drop it while another thread reads."""

    def __init__(self, path: Path) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY)
        # The lock marks the file as in use for the cache. File systems without locks hold no cache.
        with suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class OpenFiles:
    """Reads by (number of the file, offset, size) with one `pread` each, so there is no shared file position.

    Files are opened when first read. A forked process may use it, and it can be pickled: the copy opens its own.

    Args:
        locate: returns the path of a file by its number, after downloading a remote file; can be pickled.
        most: the maximum number of open files; None: 128.
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
