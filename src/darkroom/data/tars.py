"""Reads the members of tars from untrusted sources: nothing is extracted, and all damage is reported.

The `tarfile` of the standard library reads a damaged header, or a cut between two members, as the end of the archive.
"""

import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from darkroom.errors import DarkroomError

_BLOCK = tarfile.BLOCKSIZE
_EXTENDED = 2**20  # maximum bytes of an extended header: names and times need a few hundred
_DIGITS = 20  # maximum digits of a size in an extended header
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
_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_RECORDS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE)


class Member(NamedTuple):
    """A file in a tar: its name without a leading `./`, offset and size in bytes, for a hard link of its target."""

    name: str
    offset: int
    size: int


class DamagedTarError(DarkroomError):
    """A tar is truncated or has a damaged header; the message names the byte and the number of readable members."""


def compression(path: Path) -> str | None:
    """Return the compression of a file, by its first bytes: gzip, bzip2, xz or zstd; None: not compressed.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        begins = file.read(6)
    return next((kind for magic, kind in _MAGIC.items() if begins.startswith(magic)), None)


def members(path: Path, shard: str, unread: list[tuple[str, str]] | None = None) -> Iterator[Member]:
    """Yield the files in a tar, in their order. Folders are left out; the bytes of the files are not read.

    Args:
        path: a tar without compression: POSIX (ustar, pax) or GNU.
        shard: the name of the tar for messages.
        unread: a list to which members that cannot be read are added, each with its name and the reason: a symbolic
            link, a hard link to no earlier member, an absolute path or one with `..`; None: they are refused.

    Raises:
        DarkroomError: a member that may be an attack: a device, a pipe, a sparse file, a pickle, or one that belongs
            into `unread` where that is None; the message names shard and member.
        DamagedTarError: the tar is damaged; raised after the readable members.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        yield from _Walk(file, shard, unread).members()


class _Walk:
    def __init__(self, file: BinaryIO, shard: str, unread: list[tuple[str, str]] | None) -> None:
        self._file, self._shard, self._unread = file, shard, unread
        self._end = os.fstat(file.fileno()).st_size
        self._at = self._found = 0  # the byte of the next header; files found

    def members(self) -> Iterator[Member]:
        said: dict[str, str] = {}  # records of extended headers on the next member
        earlier: dict[str, Member] = {}  # by name: a hard link names one of these
        while (info := self._header()) is not None:
            data = self._at + _BLOCK
            if info.type in _NAMES or info.type in _RECORDS:
                said |= self._extension(info)
                self._at = data + _padded(info.size)
                continue
            name, target = said.get("path", info.name), said.get("linkpath", info.linkname).removeprefix("./")
            # No data follow a link, whatever size its header has.
            size = 0 if info.issym() or info.islnk() else self._number(said.get("size"), info.size)
            fault = _unreadable(name, info)
            if fault is None and info.islnk() and target not in earlier:
                fault = f"a hard link to {_quoted(target)} (no earlier member)"
            if refused := _hostile(name, info, said) or (fault if self._unread is None else None):
                raise self._refused(name, refused)
            if data + size > self._end:
                raise self._damaged(f"the member {_quoted(name)} of {size:,} bytes goes on past the end of the file")
            self._at = data + _padded(size)
            said = {}
            if fault is not None and self._unread is not None:
                self._unread.append((name, fault))
            elif not info.isdir():
                self._found += 1
                name = name.removeprefix("./")
                earlier[name] = earlier[target]._replace(name=name) if info.islnk() else Member(name, data, size)
                yield earlier[name]
        if said:
            raise self._damaged("the archive ends after an extended header, where its member should be")

    def _header(self) -> tarfile.TarInfo | None:
        """Return the header at the current offset; None at the regular end of the archive."""
        block = self._read(self._at, _BLOCK)
        if not block:
            raise self._damaged("the file ends here without the two blocks of zeros that end a tar")
        if block == bytes(_BLOCK):
            self._require_end()
            return None
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise self._damaged(f"the header of a member is damaged ({error})") from error
        if info.size < 0:
            raise self._damaged(f"the header of a member is damaged (its size is {info.size})")
        return info

    def _require_end(self) -> None:
        """Check that the rest of the file is zeros, at least two blocks."""
        start = self._at
        if self._end - start < 2 * _BLOCK:
            raise self._damaged("the file ends within the two blocks of zeros that end a tar")
        for first in range(start, self._end, _CHUNK):
            chunk = self._read(first, _CHUNK)
            if chunk.strip(b"\0"):
                self._at = first + len(chunk) - len(chunk.lstrip(b"\0"))
                raise self._damaged("there are bytes after the end of the archive: its headers or another tar")

    def _extension(self, info: tarfile.TarInfo) -> dict[str, str]:
        """Return the records of an extended header, `path` and `size` among them."""
        if info.size > _EXTENDED:
            raise self._refused(info.name, f"an extended header of {info.size:,} bytes")
        data = self._read(self._at + _BLOCK, info.size)
        if len(data) < info.size:
            raise self._damaged("the file ends within an extended header")
        if info.type in _NAMES:
            key = "path" if info.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
            return {key: data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
        try:
            records = dict(_records(data))
        except ValueError as error:
            raise self._damaged("an extended header is damaged") from error
        # A global header is for comments: a reader must not apply a name or size to all members.
        return records if info.type != tarfile.XGLTYPE else {k: v for k, v in records.items() if _sparse(k)}

    def _number(self, text: str | None, otherwise: int) -> int:
        if text is None:
            return otherwise
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
            raise self._damaged(f"an extended header is damaged (it says size {text[:30]!r})")
        return int(text)

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        return self._file.read(size)

    def _damaged(self, what: str) -> DamagedTarError:
        return DamagedTarError(
            f"at byte {self._at:,} of {self._end:,}: {what}; members before it that can be read: {self._found:,}"
        )

    def _refused(self, name: str, what: str) -> DarkroomError:
        return DarkroomError(
            f"{self._shard}: the member {_quoted(name)} is {what}, which no shard of images has to hold: the shard is "
            "refused. Ask its author, or write it again without that member."
        )


def _unreadable(name: str, info: tarfile.TarInfo) -> str | None:
    """Return why a member of this name and header is not read; None: it is."""
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or (len(parts[0]) == 2 and parts[0].endswith(":")):
        return "an absolute path"
    if ".." in parts:
        return "a path with `..`"
    return "a symbolic link" if info.issym() else None


def _hostile(name: str, info: tarfile.TarInfo, said: dict[str, str]) -> str | None:
    """Return why a tar with a member of this name, header and extended header is refused; None: it is not."""
    if any(map(_sparse, said)):
        return _KINDS[tarfile.GNUTYPE_SPARSE]
    if info.isdir():
        return "a folder with content" if info.size else None
    if info.type in _KINDS or not (info.issym() or info.islnk() or info.type in tarfile.REGULAR_TYPES):
        return _KINDS.get(info.type, f"of the unknown type {info.type!r}")
    endings = PurePosixPath(name).name.lower().split(".")[1:]
    if endings and endings[-1] in _PACKED:
        endings.pop()
    if endings and endings[-1] in _PICKLES:
        return f"a pickle by its ending .{endings[-1]}"
    return None


def _records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the records of a pax header, each its length, a space, KEY=VALUE and a line feed. Raises ValueError."""
    while data.strip(b"\0"):
        digits, _, _ = data.partition(b" ")
        if not digits.isdigit() or len(digits) > len(str(_EXTENDED)):
            raise ValueError
        length = int(digits)
        key, equals, value = data[len(digits) + 1 : length].partition(b"=")
        if not key or not equals or not value.endswith(b"\n") or len(data) < length:
            raise ValueError
        yield key.decode("utf-8", "surrogateescape"), value[:-1].decode("utf-8", "surrogateescape")
        data = data[length:]


def _sparse(key: str) -> bool:
    return key.startswith("GNU.sparse.")


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


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
    found: list[Sample] = []
    latest: dict[str, dict[str, Member]] = {}
    for member in members:
        if (named := split_name(member.name)) is None:
            continue
        key, ending = named
        if key not in latest or ending in latest[key]:
            latest[key] = {}
            found.append((key, latest[key]))
        latest[key][ending] = member
    return found
