"""The units that sources give and shards keep."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from PIL import Image

from darkroom.data.damage import Finding


@dataclass(frozen=True)
class Sample:
    """One prepared image and what is said of it.

    key: its name, letters, digits, `_` and `-` only (a dot would end the key inside a webdataset tar).
    image: prepared: all of a folder have one size and mode.
    label: the name of its class, or None.
    caption: a text, or None.
    """

    key: str
    image: Image.Image
    label: str | None = None
    caption: str | None = None


@dataclass(frozen=True)
class Entry:
    """A sample as a source lists it: cheap to make, small to send to another process.

    key: its name. Sources give keys in an order of their own, the same at every call; a key that comes again, or that
        cannot name a file, is quarantined.
    where: where it is, for people and `quarantine.parquet`: a path below the folder, a member of a tar, a number.
    payload: what the source's `read` needs: a number, a path, an offset.
    findings: what is already known to be wrong with it.
    """

    key: str
    where: str
    payload: Any = None
    findings: tuple[Finding, ...] = ()


class Extent(NamedTuple):
    """Where bytes lie: in which of a source's tars, from which offset on, and how many."""

    tar: int
    offset: int
    size: int


@dataclass(frozen=True)
class Raw:
    """What a source reads of an entry.

    image: the bytes of a file, or an image that the source holds as pixels; any size and mode.
    extension: what the name says of the format ("jpg"); None where there is no name to be wrong.
    identity: what makes two samples duplicates; None: this source has none by construction.
    extent: where `image` lies, in sources that are indexed in place.
    """

    image: bytes | Image.Image
    label: str | None = None
    caption: str | None = None
    extension: str | None = None
    identity: bytes | None = None
    findings: tuple[Finding, ...] = field(default=())
    extent: Extent | None = None
