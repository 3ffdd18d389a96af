"""Checks a tar against the rows of the index: every byte, every header, every image and its annotations."""

import hashlib
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import fsspec
import pyarrow as pa

from darkroom.errors import DarkroomError
from darkroom.remote import is_remote, local_path, redacted, telling
from darkroom.tools.verify.problems import Problem

_BUFFER = 1 << 20
_BLOCK = tarfile.BLOCKSIZE
_WITHOUT_DATA = {tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE}
_FACTS = ("key", "label", "caption", "width", "height", "original_width", "original_height")


@dataclass(frozen=True)
class Job:
    """A tar to check.

    place: the path or URL of the tar.
    bytes, sha256: size and hash of the tar, from the manifest.
    rows: the rows of its images in the index; None where the index is damaged.
    extension: the extension of image members; None where the tar is indexed in place, and may hold other members.
    remedy: what to do where it is damaged.
    """

    place: str
    bytes: int
    sha256: str
    rows: pa.Table | None
    extension: str | None
    remedy: str

    @property
    def shown(self) -> str:
        """The path, or the URL without its query and password."""
        return redacted(self.place) if is_remote(self.place) else self.place


@dataclass(frozen=True)
class Checked:
    """The result of the check of a tar: errors, bytes read, and images; its length is the number of images."""

    faults: list[Problem]
    bytes: int
    images: int

    def __len__(self) -> int:
        return self.images


class Member(NamedTuple):
    """A member: whether it is a `plain` file, the offset and expected size of its data, and the data, maybe cut off."""

    name: str
    plain: bool
    offset: int
    size: int
    data: bytes


class Gap(NamedTuple):
    """An offset without a valid header where one is expected."""

    offset: int
    what: str


class Hashed:
    """A stream that is hashed and counted while it is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.digest, self.bytes = stream, hashlib.sha256(), 0

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer at the end of the stream."""
        data = self._stream.read(count)
        self.digest.update(data)
        self.bytes += len(data)
        return data


def walk(stream: Hashed) -> Iterator[Member | Gap]:
    """Yield the members and gaps of a tar, in one pass over all of its bytes.

    After a damaged header it continues with the next block that has the checksum of a header; `tarfile` would stop
    there in silence, and `darkroom.data.tars` refuses the tar.
    """
    lost = ended = False
    while block := stream.read(_BLOCK):
        at = stream.bytes - len(block)
        if block == bytes(_BLOCK):
            ended = True
            continue
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            if not lost:
                yield Gap(at, str(error))
            lost, ended = True, False
            continue
        if ended:
            yield Gap(at - _BLOCK, "empty header")
        lost = ended = False
        size = 0 if info.type in _WITHOUT_DATA else max(0, info.size)
        data = stream.read(-(-size // _BLOCK) * _BLOCK)[:size]
        yield Member(info.name, info.isreg(), at + _BLOCK, info.size, data)
    if not ended:
        yield Gap(stream.bytes, "it is cut off")


def check_tar(job: Job) -> Checked:
    """Check a tar; see `Job`. A remote tar is read from its URL, not from the cache."""
    images = 0 if job.rows is None else job.rows.num_rows
    try:
        if is_remote(job.place):
            # Network clients raise errors of many types, whose texts may contain signed links.
            with telling("cannot be read"), fsspec.open(job.place, "rb") as stream:
                return _checked(job, stream, images)
        with local_path(job.place).open("rb", _BUFFER) as stream:
            return _checked(job, stream, images)
    except FileNotFoundError:
        return Checked([Problem(job.shown, "is missing", job.remedy)], 0, images)
    except (DarkroomError, OSError) as error:
        return Checked([Problem(job.shown, "cannot be read", job.remedy, detail=redacted(str(error)))], 0, images)


def _checked(job: Job, stream: BinaryIO, images: int) -> Checked:
    hashed = Hashed(stream)
    rows = None if job.rows is None else job.rows.to_pylist()
    faults = list(_faults(job, rows, walk(hashed)))
    whole = []
    if job.bytes != hashed.bytes:
        detail = f"{hashed.bytes:,} bytes, and the manifest says {job.bytes:,}"
        whole.append(Problem(job.shown, "has another size", job.remedy, detail=detail))
    elif job.sha256 != hashed.digest.hexdigest():
        whole.append(Problem(job.shown, "is damaged: its sha256 is not that of the manifest", job.remedy))
    return Checked(whole + faults, hashed.bytes, images)


def _faults(job: Job, rows: list[dict[str, Any]] | None, items: Iterable[Member | Gap]) -> Iterator[Problem]:
    """Yield the errors of the members of a tar.

    A tar that Darkroom wrote holds for each row its image, metadata, label and caption, and nothing else. In a tar that
    is indexed in place, only the images count, each at its offset, which hard links share.
    """
    stored = job.extension is not None
    awaited: dict[str | int, list[tuple[dict[str, Any], str | None]]] = {}
    for row in rows or []:
        if stored:
            awaited |= {f"{row['key']}.{extension}": [(row, extension)] for extension in _extensions(row, job)}
        else:
            awaited.setdefault(row["offset"], []).append((row, None))
    for item in items:
        if isinstance(item, Gap):
            if stored:
                detail = f"at byte {item.offset:,}, {item.what}"
                yield Problem(job.shown, "has no header where one must be", job.remedy, detail=detail)
            continue
        found = awaited.pop(item.name if stored else item.offset, [])
        if stored and not item.plain:
            yield Problem(job.shown, "has a member that is no file", job.remedy, detail=item.name)
        if stored and rows is not None and not found:
            yield Problem(job.shown, "has a member that is not in the index, or twice", job.remedy, detail=item.name)
        for row, extension in found:
            yield from (Problem(job.shown, what, job.remedy, row["key"]) for what in _differences(row, extension, item))
    for name in sorted(awaited, key=str):
        for row, extension in awaited[name]:
            what = f"has no .{extension}, or its header is damaged" if stored else "is not where the index says"
            yield Problem(job.shown, what, job.remedy, row["key"])


def _extensions(row: dict[str, Any], job: Job) -> Iterator[str]:
    yield from ("json", str(job.extension))
    if row["label"] is not None:
        yield "cls"
    if row["caption"] is not None:
        yield "txt"


def _differences(row: dict[str, Any], extension: str | None, item: Member) -> Iterator[str]:
    """Yield what differs between a member and its row of the index."""
    if extension in ("json", "cls", "txt"):
        if len(item.data) < item.size or not _agrees(row, extension, item.data):
            yield f"has another .{extension} than the index says"
        return
    if (item.offset, item.size) != (row["offset"], row["size"]):
        yield "is not where the index says"
    if hashlib.sha256(item.data).digest() != row["sha256"]:
        yield "is damaged: its sha256 is not that of the index"


def _agrees(row: dict[str, Any], extension: str, data: bytes) -> bool:
    """Return whether the annotations beside an image equal those of the index."""
    if extension != "json":
        return data == str(row["label" if extension == "cls" else "caption"]).encode()
    try:
        metadata = json.loads(data)
        return all(metadata[name] == row[name] for name in _FACTS) and metadata["sha256"] == row["sha256"].hex()
    except (ValueError, KeyError, TypeError):
        return False
