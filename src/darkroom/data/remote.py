"""Download remote tars to a cache, each as a whole when it is first needed."""

# No effect on any output: downloads and caches remote shards, and checks their hashes

import errno
import fcntl
import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec.core import url_to_fs

from darkroom.artifacts.manifest import ArtifactError, sha256_file
from darkroom.errors import DarkroomError
from darkroom.remote import library_errors, redacted, require_no_password

GIGABYTES = "DARKROOM_CACHE_GB"  # in the environment: `run.cache_gb`, for this process and those it starts
_DEFAULT = 20.0


class Cache:
    """Cache of local files by origin. Several processes and threads may use one folder; each file is made once.

    `folder` is made when needed. None: `.darkroom/cache/shards` of the main checkout, also in a queued experiment.
    `limit` is in bytes; the least recently used files are removed first. A file that is removed while it is open can
    still be read, so the files in use at one time can exceed it. None: `run.cache_gb`.
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
        """Return the file of a URL and version, a text that changes when the origin changes; made unless it is here.

        Raises:
            ArtifactError: the file has another SHA-256; nothing is kept.
            OSError: the folder cannot be written, or the disk is full; nothing is kept.
            Exception: any error of `make`.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked(f"{_short(name)}.lock"):
            if (cached := self.find(name, version, sha256)) is not None:
                return cached
            part = self.folder / f".{_short(name)}.part"  # one that a killed process left is overwritten
            try:
                make(part)
                with part.open("rb") as file:
                    os.fsync(file.fileno())
                content = sha256_file(part)
                if sha256 not in (None, content):
                    raise ArtifactError(
                        f"{redacted(name)} differs from the file that was ingested (its sha256 is "
                        f"{content[:12]}…, not {str(sha256)[:12]}…): restore the old file, or run `dvc repro "
                        "--force ingest@PART` for its part, because DVC does not detect changes behind a URL."
                    )
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
                path.unlink(missing_ok=True)
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


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


_TRIES = 4
# Entries of a file system's metadata that change with the content of a file.
_VERSION = (
    *("size", "ETag", "etag", "Content-MD5", "content_md5", "Digest", "md5Hash", "blob_id", "generation"),
    *("LastModified", "Last-Modified", "last_modified", "mtime", "created"),
)
_AGAIN = (408, 429)  # HTTP statuses that are tried again: timeout, too many requests; others from 400 to 499 are final

Result = TypeVar("Result")


def require_url(url: str, key: str) -> None:
    """Check that `url`, the value of `key` in params.yaml, is a path or a URL that is only read.

    Raises:
        DarkroomError: the URL would run a command, as `pipe:` does in other readers of shards, names an unknown file
            system, or contains a password.
    """
    protocol, colon, address = url.strip().partition(":")
    runs = url.strip().startswith("|") or url.strip().endswith("|")
    path = not colon or "/" in protocol
    if runs or not (path or (address.startswith("//") and protocol in fsspec.available_protocols())):
        raise DarkroomError(
            f"`{key}` is {redacted(url)!r}, which is neither a path nor a URL that fsspec reads (https://…, s3://…, "
            "gs://…, hf://…). Commands, such as `pipe:`, are never run for data."
        )
    require_no_password(url, key)


class RemoteShards:
    """Shards at URLs of fsspec, downloaded as a whole into a cache. Can be pickled, and used after a fork.

    Where `sha256` has the hash of a URL, a cached shard is used without a request, and one with another content is
    refused. `pause` is the wait before the second attempt after a network error, in seconds; it doubles before the
    third.
    """

    def __init__(self, sha256: Mapping[str, str] | None = None, cache: Cache | None = None, pause: float = 1.0) -> None:
        self._sha256 = dict(sha256 or {})
        self._cache = cache or Cache()
        self._pause = pause
        self._pending: deque[str] = deque()
        self._thread: threading.Thread | None = None

    def fetch(self, url: str) -> Path:
        """Return the local copy of a shard; it may be removed before the next call, but not while it is open.

        Raises:
            DarkroomError: it cannot be downloaded in several attempts; the message names the URL, without secrets.
            ArtifactError: it has changed since its SHA-256 was recorded.
        """
        sha256 = self._sha256.get(url)
        if sha256 is not None and (cached := self._cache.find(url, sha256=sha256)) is not None:
            return cached
        action = f"cannot fetch {redacted(url)}"
        info = self._tried(action, lambda: _info(url))
        version = repr([(key, str(info[key])) for key in _VERSION if info.get(key) is not None])

        def make(part: Path) -> None:
            print(f"fetches {redacted(url)}")
            self._tried(action, lambda: _copy(url, part, info.get("size")))

        return self._cache.make(url, version, make, sha256)

    def prefetch(self, urls: Iterable[str]) -> None:
        """Download shards in the background, in this order; pending requests of an earlier call are dropped.

        Errors are ignored here: `fetch` reports them.
        """
        self._pending = deque(urls)
        if self._pending and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while self._pending:
            with suppress(Exception):
                self.fetch(self._pending.popleft())

    def _tried(self, action: str, work: Callable[[], Result]) -> Result:
        """Return the result of `work`, after several attempts where the network fails. Raises DarkroomError."""
        for number in range(_TRIES):
            try:
                with library_errors(action):
                    return work()
            except DarkroomError as error:
                reason = error.__cause__
                if isinstance(reason, OSError) and reason.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise reason from None  # an error of this machine's disk, which the runner reports
                if number == _TRIES - 1 or _final(reason):
                    raise
            time.sleep(self._pause * 2**number)
        raise AssertionError

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pending": deque(), "_thread": None}


def _final(error: BaseException | None) -> bool:
    status = getattr(error, "status", 0)
    return isinstance(error, FileNotFoundError | PermissionError) or (400 <= status < 500 and status not in _AGAIN)


def _info(url: str) -> dict[str, Any]:
    system, path = url_to_fs(url)  # a new one after a fork
    system.invalidate_cache()
    return dict(system.info(path))


def _copy(url: str, part: Path, size: int | None) -> None:
    system, path = url_to_fs(url)
    system.get_file(path, str(part))
    received = part.stat().st_size
    if size not in (None, received):
        raise OSError(f"received {received:,} of {size:,} bytes")
