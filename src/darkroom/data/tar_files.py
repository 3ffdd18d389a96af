"""Tars by number, each as a plain local file: remote tars are downloaded first, compressed tars are unpacked."""

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
from darkroom.remote import is_remote, local_path

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
