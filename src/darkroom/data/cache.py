"""Tars that were fetched or unpacked, in one folder of bounded size that all processes of this machine share.

A file is called NAME-VERSION-SHA256.tar: hashes of what it is of and of which version of it, and of its content. So
nothing stands beside it, and it appears whole or not at all. Who reads one holds a shared lock on it (`OpenFiles`).
"""

# No effect on any output: fetches and keeps shards that lie elsewhere; what comes is checked by its hash

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from darkroom.artifacts.hashing import sha256_file
from darkroom.errors import DarkroomError

GIGABYTES = "DARKROOM_CACHE_GB"  # in the environment: `run.cache_gb`, for this process and those it starts
_DEFAULT = 20.0


class OtherContentError(DarkroomError):
    """What was made has another SHA-256 than the one asked for."""


class Cache:
    """Files by what they are of. Several processes and threads may use one folder; each file is made once.

    Args:
        folder: made when needed; None: `.darkroom/cache/shards` of the main checkout, also in a queued experiment.
        limit: bytes; the files used longest ago make room, never one that is being read, so it can be exceeded by what
            is in use at once. None: `run.cache_gb`.
    """

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        root = Path(os.environ.get("DVC_ROOT", ".")) / ".darkroom" / "cache" / "shards"
        self.folder = root if folder is None else folder
        self.limit = int(float(os.environ.get(GIGABYTES, _DEFAULT)) * 2**30) if limit is None else limit

    def find(self, name: str, version: str | None = None, sha256: str | None = None) -> Path | None:
        """Return the file of this name, of a version, or with a content, and note its use; None: it is not here."""
        pattern = f"{_short(name)}-{'*' if version is None else _short(version)}-{'*' if sha256 is None else sha256}"
        for path in sorted(self.folder.glob(f"{pattern}.tar")):
            with suppress(FileNotFoundError):
                os.utime(path)
                return path
        return None

    def make(self, name: str, version: str, make: Callable[[Path], None], sha256: str | None = None) -> Path:
        """Return the file of a name and version, made unless it is here.

        Args:
            name: what it is of.
            version: anything that changes with what it is of.
            make: writes it to the path that it is given.
            sha256: that it must have, where that is known.

        Raises:
            OtherContentError: it has another one; nothing is kept.
            OSError: the folder cannot be written, or the disk is full; nothing is kept.
            Whatever `make` raises.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked(f"{_short(name)}.lock"):
            if (found := self.find(name, version, sha256)) is not None:
                return found
            part = self.folder / f".{_short(name)}.part"  # left behind by one that was killed, it is written over
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
                    facts = path.stat()
                    files.append((facts.st_mtime_ns, facts.st_size, path))
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
            # Said aloud: a process that was forked meanwhile holds the descriptor, too, and would keep the lock.
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
