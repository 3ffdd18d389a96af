"""Tars by number, as plain local files that many readers share: fetched where remote, unpacked where compressed."""

import bz2
import fcntl
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from darkroom.data.remote import Cache, RemoteShards
from darkroom.data.tars import DamagedTarError, compression
from darkroom.errors import DarkroomError
from darkroom.remote import is_remote, local_path

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


_OPENERS: dict[str, Callable[..., Any]] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
_CHUNK = 2**20


class TarFiles:
    """A callable that returns the path of a tar by its number, as `OpenFiles` needs it. Can be pickled.

    Args:
        names: the path or the URL of each tar.
        sha256: the hashes of URLs where they are known, see `RemoteShards`.
        cache: the cache; None: the cache of this checkout.
    """

    def __init__(
        self, names: Sequence[str], sha256: Mapping[str, str] | None = None, cache: Cache | None = None
    ) -> None:
        self.names = list(names)
        self._cache = cache or Cache()
        self.remote = RemoteShards(sha256, self._cache)

    def __call__(self, number: int) -> Path:
        """Return the path of a tar.

        Raises:
            DarkroomError: the tar cannot be downloaded or unpacked.
            DamagedTarError: the compressed data are damaged.
            OSError: the tar cannot be read.
        """
        path = self.stored(number)
        kind = compression(path)
        return path if kind is None else self._unpacked(path, self.names[number], kind)

    def stored(self, number: int) -> Path:
        """Return the path of a tar as its owner stores it, which may be compressed."""
        name = self.names[number]
        return self.remote.fetch(name) if is_remote(name) else local_path(name)

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Download the remote tars among `numbers` in the background, in this order."""
        self.remote.prefetch([self.names[number] for number in numbers if is_remote(self.names[number])])

    def _unpacked(self, path: Path, name: str, kind: str) -> Path:
        metadata = path.stat()
        # The name of a cached file contains the hash of its content; its time is the time of its last use.
        version = path.name if is_remote(name) else f"{metadata.st_size} {metadata.st_mtime_ns}"
        what = name if is_remote(name) else str(path.resolve())
        return self._cache.make(f"unpacked {what}", version, lambda part: self._unpack(path, part, kind, name))

    def _unpack(self, path: Path, part: Path, kind: str, name: str) -> None:
        if kind not in _OPENERS:
            raise DarkroomError(f"{name} is compressed with {kind}, which cannot be read here: unpack it before.")
        size = 0
        try:
            with _OPENERS[kind](path, "rb") as source, part.open("wb") as target:
                while chunk := source.read(_CHUNK):
                    size += target.write(chunk)
                    if size > self._cache.limit:
                        raise DarkroomError(
                            f"{name} unpacks to more than the cache may hold: raise `run.cache_gb`, or unpack it."
                        )
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            # Nothing of it is used: the checksum of the content comes at the end of a compressed file.
            raise DamagedTarError(f"its {kind} data are damaged ({error}); nothing of it is used") from error
