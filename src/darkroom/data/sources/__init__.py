"""Open sources of images. A part in params.yaml names a source; the section of the same name has its settings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from darkroom.data.sample import Entry, Raw
from darkroom.errors import DarkroomError
from darkroom.params.parts import SOURCES, Part
from darkroom.params.section import NO_FILE, Section


class Source(Protocol):
    """A numbered sequence of samples, the same at every call. It is pickled to the processes that read."""

    def size(self) -> int | None:
        """Return the number of samples; None: unlimited, or unknown before they are read."""
        ...

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        """Yield the samples `start` to `stop` (not included) one by one, unread; `stop` None means to the end."""
        ...

    def read(self, entry: Entry) -> Raw:
        """Return the data of an entry; called in any process, in any order.

        Raises:
            DamageError: the sample cannot be read.
        """
        ...

    def metadata(self) -> dict[str, Any]:
        """Return metadata of the source for the manifest of the part: name, version and statistics."""
        ...


def open_source(chosen: Part, settings: Section, column: str = "") -> Source:
    """Return the source of a part, whose samples hold as `group` the text in a `column`.

    Raises:
        DarkroomError: the source cannot be opened; the message says what to do.
    """
    if column and chosen.source not in ("folder", "hub", "webdataset"):
        raise DarkroomError(f"`ingest.group` names a column, but {chosen.source} has none: set it to auto or similar.")
    path = None if chosen.path == NO_FILE else Path(chosen.path)
    return SOURCES.load("source", chosen.source)(settings, path, *([column] if column else []))


def slice_of(source: Source, part: str, start: int, stop: int | None) -> tuple[int, int | None]:
    """Return the slice of a part; `stop` is None where the slice ends with the source.

    Raises:
        DarkroomError: the slice is out of range; the message names the part and the size of the source.
    """
    size = source.size()
    if size is None:
        return start, stop
    if not size:
        raise DarkroomError(f"part `{part}`: its source has no samples, so no part was written: check the source.")
    end = size if stop is None else stop
    if not 0 <= start < end <= size:
        raise DarkroomError(
            f"params.yaml: part `{part}` requests images {start} to {end} of a source with {size}: "
            f"choose start and stop with 0 <= start < stop <= {size}."
        )
    return start, end
