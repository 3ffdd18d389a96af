"""List the members of tars from untrusted sources: nothing is extracted, and damage is reported.

The `tarfile` of the standard library takes a damaged header, or a cut between two members, for the end of the archive,
so the bytes after the last member are checked here. Extended headers have no checksum in a tar.
"""

import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from darkroom.errors import DarkroomError

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 2**20
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
# Endings that decoders of shards would unpickle, which can run any code. Arrays (.npy, .npz) are allowed: members with
# these endings are never read here, and NumPy unpickles only on request.
_PICKLES = {"pyd", "pickle", "pkl", "pth", "pt", "ckpt", "joblib", "dill"}
_PACKED = {"gz", "bz2", "xz", "zst"}
_KINDS = {
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class Member(NamedTuple):
    """A file in a tar: its name without a leading `./`, offset and size in bytes, for a hard link of its target."""

    name: str
    offset: int
    size: int


class DamagedTarError(DarkroomError):
    """A tar is truncated or has a damaged header; the message names the byte and the number of readable members."""


def members(path: Path, shard: str, unread: list[tuple[str, str]] | None = None) -> Iterator[Member]:
    """Yield the files in a tar, in their order. Folders are left out; the bytes of the files are not read.

    Args:
        path: a tar without compression: POSIX (ustar, pax) or GNU.
        shard: the name of the tar for messages.
        unread: a list to which members that cannot be read are added, each with its name and the reason: a symbolic
            link, a hard link to no earlier member, an absolute path or one with `..`; None: they are refused.

    Raises:
        DarkroomError: the tar is compressed, or a member may be an attack: a device, a pipe, a sparse file, a pickle,
            or one for `unread` if that is None; the message names shard and member.
        DamagedTarError: the tar is damaged; raised after the readable members.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        begins = file.read(6)
        if kind := next((kind for magic, kind in _MAGIC.items() if begins.startswith(magic)), None):
            raise DarkroomError(f"{shard} is compressed ({kind}), so single images cannot be read: decompress it.")
        file.seek(0)
        end, at, count = os.fstat(file.fileno()).st_size, 0, 0
        earlier: dict[str, Member] = {}  # by name: a hard link names one of these

        def damaged(at: int, fault: str) -> DamagedTarError:
            return DamagedTarError(f"at byte {at:,} of {end:,}: {fault}; members before it that can be read: {count:,}")

        # Its errors come from headers, also from oversized ones; all leave bytes behind the last member.
        with suppress(tarfile.TarError, ValueError, MemoryError):
            tar = tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape")
            while (info := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # which it would keep
                name, target = info.name, info.linkname.removeprefix("./")
                reason = _unreadable(info)
                if reason is None and info.islnk() and target not in earlier:
                    reason = f"a hard link to {_quoted(target)} (no earlier member)"
                if refused := _hostile(info) or (reason if unread is None else None):
                    raise DarkroomError(
                        f"{shard}: the member {_quoted(name)} is {refused}, which shards of images do not need, so the "
                        "shard is refused. Ask its author, or rewrite it without that member."
                    )
                if info.isreg() and not 0 <= info.size <= end - info.offset_data:
                    problem = f"the member {_quoted(name)} of {info.size:,} bytes goes on past the end of the file"
                    raise damaged(info.offset, problem)
                at = tar.offset
                if reason is not None and unread is not None:
                    unread.append((name, reason))
                elif not info.isdir():
                    count, name = count + 1, name.removeprefix("./")
                    member = earlier[target] if info.islnk() else Member(name, info.offset_data, info.size)
                    earlier[name] = member._replace(name=name)
                    yield earlier[name]
        if (fault := _end_fault(file, at, end)) is not None:
            raise damaged(*fault)


def _end_fault(file: BinaryIO, at: int, end: int) -> tuple[int, str] | None:
    """Return position and damage of a tar after its last member, which ends at byte `at`; None: only zeros follow."""
    if at >= end:
        return at, "the file ends here without the two blocks of zeros that end a tar"
    file.seek(at)
    if file.read(_BLOCK).strip(b"\0"):
        return at, "the header of a member is damaged"
    if end - at < 2 * _BLOCK:
        return at, "the file ends within the two blocks of zeros that end a tar"
    for first in range(at + _BLOCK, end, _CHUNK):
        if rest := file.read(_CHUNK).lstrip(b"\0"):
            at = min(first + _CHUNK, end) - len(rest)
            return at, "there are bytes after the end of the archive: its headers or another tar"
    return None


def _unreadable(info: tarfile.TarInfo) -> str | None:
    """Return why a member is not read; None: it is."""
    parts = info.name.replace("\\", "/").split("/")
    if info.name.startswith(("/", "\\")) or (len(parts[0]) == 2 and parts[0].endswith(":")):
        return "an absolute path"
    if ".." in parts:
        return "a path with `..`"
    return "a symbolic link" if info.issym() else None


def _hostile(info: tarfile.TarInfo) -> str | None:
    """Return why a tar with this member is refused; None: it is not."""
    if info.sparse is not None or any(key.startswith("GNU.sparse.") for key in info.pax_headers):
        return "a sparse file"
    if info.isdir():
        return "a folder with content" if info.size else None
    if info.type in _KINDS or not (info.issym() or info.islnk() or info.type in tarfile.REGULAR_TYPES):
        return _KINDS.get(info.type, f"of the unknown type {info.type!r}")
    endings = PurePosixPath(info.name).name.lower().split(".")[1:]
    if endings and endings[-1] in _PACKED:
        endings.pop()
    if endings and endings[-1] in _PICKLES:
        return f"a pickle by its ending .{endings[-1]}"
    return None


def _quoted(name: str) -> str:
    return ascii(name) if not name.isprintable() else f"`{name}`"


_META = re.compile(r"__[^/]*__($|/)")  # webdataset's metadata of the whole shard

Sample = tuple[str, dict[str, Member]]


def split_name(name: str) -> tuple[str, str] | None:
    """Return the key and the extension of a member: the name before and after the first dot behind the last `/`.

    The folder is part of the key; the extension is in lower case, and may be empty. None: the member belongs to no
    sample: metadata of webdataset, or a hidden file, such as `._NAME`, which macOS adds for each file.
    """
    folder, slash, file = name.rpartition("/")
    if _META.match(name) or file.startswith("."):
        return None
    stem, _, ending = file.partition(".")
    return folder + slash + stem, ending.lower()


def samples(members: Iterable[Member]) -> list[Sample]:
    """Return the samples of a shard: their keys, and their members by extension; members may come in any order.

    A repeated extension begins another sample with the same key, which is quarantined and listed.
    """
    listed: list[Sample] = []
    latest: dict[str, dict[str, Member]] = {}
    for member in members:
        if (named := split_name(member.name)) is None:
            continue
        key, ending = named
        if key not in latest or ending in latest[key]:
            latest[key] = {}
            listed.append((key, latest[key]))
        latest[key][ending] = member
    return listed
