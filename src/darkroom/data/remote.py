"""Remote shards: each is downloaded as a whole into a cache when it is first needed."""

# No effect on any output: fetches and keeps shards that lie elsewhere; what comes is checked by its hash

import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec.core import url_to_fs

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.cache import Cache, OtherContentError
from darkroom.errors import DarkroomError
from darkroom.remote import redacted, require_no_password, telling

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
    protocol, colon, rest = url.strip().partition(":")
    if url.strip().startswith("|") or url.strip().endswith("|") or protocol.lower() == "pipe":
        raise DarkroomError(
            f"`{key}` is {redacted(url)!r}, which would run a command: that is never done for data. Give an fsspec URL "
            "(https://…, s3://…, gs://…, hf://…), or download the shards and give the part their folder."
        )
    if colon and "/" not in protocol and not rest.startswith("//"):
        raise DarkroomError(f"`{key}` is {redacted(url)!r}, which is no path and no URL: write PROTOCOL://….")
    if "://" in url and protocol not in fsspec.available_protocols():
        raise DarkroomError(f"`{key}` is {redacted(url)!r}, and fsspec knows no protocol {protocol!r}.")
    require_no_password(url, key)


class RemoteShards:
    """Shards at URLs of fsspec, downloaded as a whole into a cache. Can be pickled, and used after a fork.

    Args:
        sha256: the hashes of the URLs, where they are known: a cached shard is then used without a request, and a shard
            with another content is refused.
        cache: the cache; None: the cache of this checkout.
        pause: seconds before the second attempt after a network error; twice as many before the third.
    """

    def __init__(self, sha256: Mapping[str, str] | None = None, cache: Cache | None = None, pause: float = 1.0) -> None:
        self._sha256 = dict(sha256 or {})
        self._cache = cache or Cache()
        self._pause = pause
        self._wanted: deque[str] = deque()
        self._thread: threading.Thread | None = None

    def fetch(self, url: str) -> Path:
        """Return the local copy of a shard; it may be removed before the next call, but not while it is open.

        Raises:
            DarkroomError: it cannot be downloaded in several attempts; the message names the URL, without secrets.
            ArtifactError: it has changed since its SHA-256 was recorded.
        """
        sha256 = self._sha256.get(url)
        if sha256 is not None and (found := self._cache.find(url, sha256=sha256)) is not None:
            return found
        what = f"cannot fetch {redacted(url)}"
        info = self._tried(what, lambda: _info(url))
        version = repr([(key, str(info[key])) for key in _VERSION if info.get(key) is not None])

        def make(part: Path) -> None:
            print(f"fetches {redacted(url)}")
            self._tried(what, lambda: _copy(url, part, info.get("size")))

        try:
            return self._cache.make(url, version, make, sha256)
        except OtherContentError as error:
            raise ArtifactError(
                f"{redacted(url)} is another file than the one that was ingested ({error}): put the old one back, or "
                "run `dvc repro --force ingest@PART` of its part, as DVC does not see what changes behind a URL."
            ) from error

    def small(self, url: str) -> bytes | None:
        """Return the content of a small file beside shards; None: no such file. Raises DarkroomError as `fetch`."""
        return self._tried(f"cannot read {redacted(url)}", lambda: _bytes(url))

    def prefetch(self, urls: Iterable[str]) -> None:
        """Download shards in the background, in this order; pending requests of an earlier call are dropped.

        Errors are ignored here: `fetch` reports them.
        """
        self._wanted = deque(urls)
        if self._wanted and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while self._wanted:
            with suppress(Exception):
                self.fetch(self._wanted.popleft())

    def _tried(self, what: str, work: Callable[[], Result]) -> Result:
        """Return the result of `work`, after several attempts where the network fails. Raises DarkroomError."""
        for number in range(_TRIES):
            try:
                with telling(what):
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
        return {**self.__dict__, "_wanted": deque(), "_thread": None}


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
    found = part.stat().st_size
    if size not in (None, found):
        raise OSError(f"{found:,} bytes came, and {size:,} were to come")


def _bytes(url: str) -> bytes | None:
    system, path = url_to_fs(url)
    try:
        return bytes(system.cat_file(path))
    except Exception as error:
        # Buckets without permission to list answer 403 for a missing file.
        if _final(error):
            return None
        raise
