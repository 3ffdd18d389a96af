"""Checks a tar against the rows of the index: every byte, every header, every image and its annotations."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa

from darkroom.errors import DarkroomError
from darkroom.remote import is_remote, local_path, redacted, telling
from darkroom.tools.verify.problems import Problem
from darkroom.tools.verify.tars import Gap, Hashed, Member, walk

_BUFFER = 1 << 20
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
    contents = _Stored(job, rows) if job.extension else _InPlace(job, rows)
    faults = [fault for item in walk(hashed) for fault in contents.faults(item)]
    faults += contents.missing()
    whole = []
    if job.bytes != hashed.bytes:
        detail = f"{hashed.bytes:,} bytes, and the manifest says {job.bytes:,}"
        whole.append(Problem(job.shown, "has another size", job.remedy, detail=detail))
    elif job.sha256 != hashed.sha256:
        whole.append(Problem(job.shown, "is damaged: its sha256 is not that of the manifest", job.remedy))
    return Checked(whole + faults, hashed.bytes, images)


class _InPlace:
    """The images of a tar that Darkroom did not write: each at its offset in the index, with the indexed bytes."""

    def __init__(self, job: Job, rows: list[dict[str, Any]] | None) -> None:
        self._job = job
        self._rows: dict[int, list[dict[str, Any]]] = {}  # by offset, which hard links share
        for row in rows or []:
            self._rows.setdefault(row["offset"], []).append(row)

    def faults(self, item: Member | Gap) -> Iterator[Problem]:
        """Yield the errors of a member."""
        if isinstance(item, Member):
            for row in self._rows.pop(item.offset, []):
                yield from _image_faults(self._job, row, item)

    def missing(self) -> Iterator[Problem]:
        """Yield an error for each image of the index that was not found."""
        for row in chain.from_iterable(self._rows.values()):
            yield Problem(self._job.shown, "is not where the index says", self._job.remedy, row["key"])


class _Stored:
    """The members of a tar that Darkroom wrote: for each row its image, metadata, label and caption."""

    def __init__(self, job: Job, rows: list[dict[str, Any]] | None) -> None:
        self._job, self._known = job, rows is not None
        self._rows = {row["key"]: row for row in rows or []}
        self._awaited = {name for row in rows or [] for name in _names(row, job.extension)}

    def faults(self, item: Member | Gap) -> Iterator[Problem]:
        """Yield the errors of a member, or of a gap where a header is missing."""
        place, remedy = self._job.shown, self._job.remedy
        if isinstance(item, Gap):
            yield Problem(
                place, "has no header where one must be", remedy, detail=f"at byte {item.offset:,}, {item.what}"
            )
            return
        if not item.plain:
            yield Problem(place, "has a member that is no file", remedy, detail=item.name)
        if not self._known:
            return
        if item.name not in self._awaited:
            yield Problem(place, "has a member that is not in the index, or twice", remedy, detail=item.name)
            return
        self._awaited.remove(item.name)
        key, _, extension = item.name.rpartition(".")
        row = self._rows[key]
        if extension == self._job.extension:
            yield from _image_faults(self._job, row, item)
        elif len(item.data) < item.size or not _agrees(row, extension, item.data):
            yield Problem(place, f"has another .{extension} than the index says", remedy, key)

    def missing(self) -> Iterator[Problem]:
        """Yield an error for each member of the index that was not found."""
        for name in sorted(self._awaited):
            key, _, extension = name.rpartition(".")
            yield Problem(self._job.shown, f"has no .{extension}, or its header is damaged", self._job.remedy, key)


def _names(row: dict[str, Any], image: str | None) -> Iterator[str]:
    yield f"{row['key']}.json"
    yield f"{row['key']}.{image}"
    if row["label"] is not None:
        yield f"{row['key']}.cls"
    if row["caption"] is not None:
        yield f"{row['key']}.txt"


def _image_faults(job: Job, row: dict[str, Any], item: Member) -> Iterator[Problem]:
    if (item.offset, item.size) != (row["offset"], row["size"]):
        yield Problem(job.shown, "is not where the index says", job.remedy, row["key"])
    if hashlib.sha256(item.data).digest() != row["sha256"]:
        yield Problem(job.shown, "is damaged: its sha256 is not that of the index", job.remedy, row["key"])


def _agrees(row: dict[str, Any], extension: str, data: bytes) -> bool:
    """Return whether the annotations beside an image equal those of the index."""
    if extension in ("cls", "txt"):
        return data == str(row["label" if extension == "cls" else "caption"]).encode()
    try:
        metadata = json.loads(data)
        return all(metadata[name] == row[name] for name in _FACTS) and metadata["sha256"] == row["sha256"].hex()
    except (ValueError, KeyError, TypeError):
        return False
