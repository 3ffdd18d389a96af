"""Define samples, as sources list and read them, and as shards store them."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from PIL import Image

from darkroom.data.damage import Finding


@dataclass(frozen=True)
class Sample:
    """One prepared image with its annotations.

    key: the name of the sample: letters, digits, `_` and `-` only (a dot would end the key in a webdataset tar).
    image: the prepared image; all images of a folder have one size and mode.
    label: the name of the class.
    """

    key: str
    image: Image.Image
    label: str | None = None
    caption: str | None = None


@dataclass(frozen=True)
class Entry:
    """A sample as a source lists it: cheap to make, and small to send to another process.

    key: the name of the sample. The order of the keys is the same at every call; a repeated or invalid key is
        quarantined.
    where: the location for messages and `quarantine.parquet`: a path below the folder, a member of a tar, a number.
    payload: the input of the source's `read`: a number, a path, an offset.
    findings: the damage of the sample that is already known.
    name: the path of the file below the folder, or in the tar or data set, if it has one.
    """

    key: str
    where: str
    payload: Any = None
    findings: tuple[Finding, ...] = ()
    name: str | None = None


class Extent(NamedTuple):
    """A range of bytes: the number of the tar in its source, the offset, and the number of bytes."""

    tar: int
    offset: int
    size: int


@dataclass(frozen=True)
class Raw:
    """The data that a source reads for an entry.

    image: the bytes of a file, or an image that the source holds as pixels; of any size and mode.
    label: the name of the class, or None.
    caption: a text, or None.
    identity: bytes that are equal for duplicates; None: the source has no duplicates by construction.
    findings: the damage of the sample.
    extent: the location of `image`, in sources that are indexed in place.
    group: the text in the column of `ingest.group`.
    """

    image: bytes | Image.Image
    label: str | None = None
    caption: str | None = None
    identity: bytes | None = None
    findings: tuple[Finding, ...] = field(default=())
    extent: Extent | None = None
    group: str | None = None
