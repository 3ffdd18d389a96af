"""Tars that were fetched or unpacked, in one folder of bounded size that all processes of this machine share.

A file is called NAME-VERSION-SHA256.tar. NAME is a hash of the origin (a URL or a path), VERSION a hash of the version
of the origin, SHA256 the hash of the content. A file needs no metadata beside it, and it appears whole or not at all.
A reader holds a shared lock on the file that it reads (`OpenFiles`).
"""

# No effect on any output: fetches and keeps shards that lie elsewhere; what comes is checked by its hash

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from darkroom.artifacts.manifest import sha256_file
from darkroom.errors import DarkroomError

GIGABYTES = "DARKROOM_CACHE_GB"  # in the environment: `run.cache_gb`, for this process and those it starts
_DEFAULT = 20.0


class OtherContentError(DarkroomError):
    """The SHA-256 of a fetched or unpacked file is not the expected one."""


class Cache:
    """Local files by their origin. Several processes and threads may use one folder; each file is made once.

    Args:
        folder: the folder of the cache, made when needed. None: `.darkroom/cache/shards` of the main checkout, also in
            a queued experiment.
        limit: the size limit in bytes. The least recently used files are removed first, and never a file that is
            being read, so the files in use at one time can exceed the limit. None: `run.cache_gb`.
    """

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        root = Path(os.environ.get("DVC_ROOT", ".")) / ".darkroom" / "cache" / "shards"
        self.folder = root if folder is None else folder
        self.limit = int(float(os.environ.get(GIGABYTES, _DEFAULT)) * 2**30) if limit is None else limit

    def find(self, name: str, version: str | None = None, sha256: str | None = None) -> Path | None:
        """Return the path of a cached file by name and optional version and hash; None: the cache has no such file.

        The time of the file is set to now: it is the time of the last use.
        """
        pattern = f"{_short(name)}-{'*' if version is None else _short(version)}-{'*' if sha256 is None else sha256}"
        for path in sorted(self.folder.glob(f"{pattern}.tar")):
            with suppress(FileNotFoundError):
                os.utime(path)
                return path
        return None

    def make(self, name: str, version: str, make: Callable[[Path], None], sha256: str | None = None) -> Path:
        """Return the file of a name and version, made unless it is here.

        Args:
            name: the origin of the file: a URL or a path.
            version: any text that changes when the origin changes.
            make: writes the file to the path that is its argument.
            sha256: the expected SHA-256, where it is known.

        Raises:
            OtherContentError: the file has another SHA-256; nothing is kept.
            OSError: the folder cannot be written, or the disk is full; nothing is kept.
            Exception: any error of `make`.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked(f"{_short(name)}.lock"):
            if (found := self.find(name, version, sha256)) is not None:
                return found
            part = self.folder / f".{_short(name)}.part"  # one that a killed process left is overwritten
            try:
                make(part)
                with part.open("rb") as file:
                    os.fsync(file.fileno())
                content = sha256_file(part)
                if sha256 not in (None, content):
                    raise OtherContentError(f"its sha256 is {content[:12]}…, and not {str(sha256)[:12]}…")
                self._make_room(part.stat().st_size)
                return part.rename(self.folder / f"{_short(name)}-{_short(version)}-{content}.tar")
            finally:
                part.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        with self._locked("lock"):
            files = []
            for path in self.folder.glob("*.tar"):
                with suppress(FileNotFoundError):
                    metadata = path.stat()
                    files.append((metadata.st_mtime_ns, metadata.st_size, path))
            total = size + sum(size for _, size, _ in files)
            for _, size, path in sorted(files):
                if total <= self.limit:
                    return
                if _removed(path):
                    total -= size

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            # Explicitly: a process that was forked meanwhile holds the descriptor too, and would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _removed(path: Path) -> bool:
    """Remove a file unless someone reads it; return whether it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
