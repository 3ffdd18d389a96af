"""Open tars by number, as local files that many readers share, after downloading remote ones."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from braceexpand import braceexpand

from darkroom.data.keys import shown
from darkroom.data.remote import Cache, RemoteShards, require_url
from darkroom.errors import DarkroomError
from darkroom.remote import is_remote, local_path, redacted

_OPEN = 128  # files open at once: several readers stay below the usual limit of 1024 a process
_TRIES = 3  # attempts to open a file that another process may remove after it was located


class _Handle:
    """A file descriptor that is closed with its last reference, so a thread may drop it while another thread reads."""

    def __init__(self, path: Path) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class OpenFiles:
    """Read by (number of the file, offset, size) with one `pread` each, without a shared file position.

    Files are opened when first read. A forked process may use it, and it can be pickled: the copy opens its own.

    `locate` returns the path of a file by its number, after downloading a remote file, and can be pickled; `max_open`
    files are open at once, by default 128.
    """

    def __init__(self, locate: Callable[[int], Path], max_open: int | None = None) -> None:
        self._locate, self._max_open = locate, max_open
        self._handles: dict[int, _Handle] = {}

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return `size` bytes, or fewer where the file ends. Raises OSError, or what `locate` raises."""
        handle = self._handles.get(number)
        if handle is None:
            handle = self._open(number)
            if len(self._handles) >= (self._max_open or _OPEN):
                self._handles = {}
            self._handles[number] = handle
        return os.pread(handle.descriptor, size, offset)

    def _open(self, number: int) -> _Handle:
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):  # another process made room in the cache
                return _Handle(self._locate(number))
        return _Handle(self._locate(number))

    def __getstate__(self) -> dict[str, Any]:
        return {"locate": self._locate, "max_open": self._max_open}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class TarFiles:
    """A callable that returns the path of a tar by its number, as `OpenFiles` needs it. Can be pickled.

    `names` are paths or URLs, `sha256` the hashes of URLs where they are known, see `RemoteShards`.
    """

    def __init__(
        self, names: Sequence[str], sha256: Mapping[str, str] | None = None, cache: Cache | None = None
    ) -> None:
        self.names = list(names)
        self.remote = RemoteShards(sha256, cache)

    def __call__(self, number: int) -> Path:
        """Return the path of a tar. Raises DarkroomError where it cannot be downloaded."""
        name = self.names[number]
        return self.remote.fetch(name) if is_remote(name) else local_path(name)

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Download the remote tars among `numbers` in the background, in this order."""
        self.remote.prefetch([self.names[number] for number in numbers if is_remote(self.names[number])])


TAR_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")


def in_folder(path: Path) -> list[str]:
    """Return the tars of a folder, sorted by name, or the one tar that `path` is. Raises DarkroomError: no tar."""
    if path.is_file():
        return [path.as_posix()]
    if not path.is_dir():
        raise DarkroomError(f"{path} does not exist: set the part's `path` to the folder of the tars, or to one tar.")
    tars = sorted(file.as_posix() for file in path.iterdir() if file.name.endswith(TAR_ENDINGS) and file.is_file())
    if not tars:
        raise DarkroomError(f"{path} has no tars ({', '.join(TAR_ENDINGS)}): set the part's `path` to their folder.")
    for tar in tars:
        if shown(tar) != tar:
            raise DarkroomError(f"the name of {shown(tar)} is not UTF-8, so manifests cannot store it: rename it.")
    return tars


def behind(url: str) -> list[str]:
    """Return the URLs in `webdataset.url`: ranges in braces are expanded, `::` separates several URLs.

    Raises:
        DarkroomError: see `darkroom.data.remote.require_url`.
    """
    try:
        urls = [each for piece in url.split("::") for each in braceexpand(piece.strip(), escape=False)]
    except ValueError as error:
        raise DarkroomError(f"`webdataset.url` is {redacted(url)!r}, which has unbalanced braces.") from error
    for each in urls:
        require_url(each, "webdataset.url")
    return urls


def shown_tar(tar: str) -> str:
    """Return the name of a tar in messages and lists: its URL without secrets, or its file name."""
    return redacted(tar) if is_remote(tar) else shown(PurePosixPath(local_path(tar).as_posix()).name)


def stem_of(shard: str) -> str:
    """Return the file name of a tar without its extension."""
    name = shard.rpartition("/")[2]
    return next((name.removesuffix(ending) for ending in TAR_ENDINGS if name.endswith(ending)), name)
