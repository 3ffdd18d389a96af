"""Many files open for reading at any place, in any process."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_OPEN = 128  # files open at once, below the usual limit of 1024 a process with several readers


class _Handle:
    """A descriptor that is closed when the last user lets go of it, so a thread may drop it while another reads."""

    def __init__(self, path: Path) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class OpenFiles:
    """Reads by (number of the file, offset, size), one `pread` each, which leaves no position to share or to lose.

    Files are opened when first read. A forked process may use it, and it can be pickled: the copy opens its own.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._handles: dict[int, _Handle] = {}

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return `size` bytes, or fewer where the file ends. Raises OSError."""
        handle = self._handles.get(number)
        if handle is None:
            handle = _Handle(self.paths[number])
            if len(self._handles) >= _OPEN:
                self._handles = {}
            self._handles[number] = handle
        return os.pread(handle.descriptor, size, offset)

    def __getstate__(self) -> dict[str, Any]:
        return {"paths": self.paths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["paths"])  # type: ignore[misc]
