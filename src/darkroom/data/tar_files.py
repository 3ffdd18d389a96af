"""Tars by number, each as a plain local file: what is remote is fetched first, what is compressed unpacked."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from darkroom.data.cache import Cache
from darkroom.data.remote import RemoteShards
from darkroom.data.tars import DamagedTarError, compression
from darkroom.errors import DarkroomError
from darkroom.urls import is_remote, local_path

_OPENERS: dict[str, Callable[..., Any]] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
_CHUNK = 2**20


class TarFiles:
    """Called with a number, returns the path of that tar: what `OpenFiles` takes. Can be pickled.

    Args:
        names: a path or a URL of each.
        sha256: of the URLs where it is known, see `RemoteShards`.
        cache: None: the one of this checkout.
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
            DarkroomError: it cannot be fetched or unpacked.
            DamagedTarError: it is compressed, and that data are damaged.
            OSError: it cannot be read.
        """
        path = self.stored(number)
        kind = compression(path)
        return path if kind is None else self._unpacked(path, self.names[number], kind)

    def stored(self, number: int) -> Path:
        """Return the path of a tar as its owner stores it, compressed perhaps."""
        name = self.names[number]
        return self.remote.fetch(name) if is_remote(name) else local_path(name)

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Fetch those that are remote in the background, in this order."""
        self.remote.prefetch([self.names[number] for number in numbers if is_remote(self.names[number])])

    def _unpacked(self, path: Path, name: str, kind: str) -> Path:
        facts = path.stat()
        # The name of a cached file holds the hash of its content; its time says when it was used.
        version = path.name if is_remote(name) else f"{facts.st_size} {facts.st_mtime_ns}"
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
            # No part of it is used: only the end of a compressed file says whether the rest is right.
            raise DamagedTarError(f"its {kind} data are damaged ({error}); nothing of it is used") from error
