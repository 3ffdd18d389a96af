"""Where images come from. A source is named in params.yaml: by a part, and by the section with its settings."""

from collections.abc import Callable, Iterator
from typing import Protocol

from pydantic import BaseModel

from darkroom.data.sample import Sample
from darkroom.data.sources.digits import Digits
from darkroom.errors import DarkroomError


class Source(Protocol):
    """A numbered sequence of samples, the same at every call, with keys in ascending order."""

    def size(self) -> int:
        """Return the number of samples."""
        ...

    def samples(self, start: int, stop: int) -> Iterator[Sample]:
        """Yield the samples `start` to `stop` (not included) one by one, 0 <= start < stop <= size()."""
        ...


# The keys of a source's section in params.yaml are the arguments of its class.
SOURCES: dict[str, Callable[..., Source]] = {
    "digits": Digits,
}


def open_source(name: str, settings: BaseModel | None) -> Source:
    """Return the source `name` with the settings of its section in params.yaml.

    Raises:
        DarkroomError: the name is unknown, or the section is missing.
    """
    if name not in SOURCES:
        raise DarkroomError(f"params.yaml: there is no source `{name}`; there are: {', '.join(SOURCES)}.")
    if settings is None:
        raise DarkroomError(f"params.yaml: the section `{name}` with the settings of this source is missing.")
    return SOURCES[name](**settings.model_dump())


def slice_of(source: Source, part: str, start: int, stop: int | None) -> range:
    """Return the numbers of a part's samples; `stop` None means to the end.

    Raises:
        DarkroomError: the slice lies outside the source; names the part and the source's size.
    """
    size = source.size()
    end = size if stop is None else stop
    if not 0 <= start < end <= size:
        raise DarkroomError(
            f"params.yaml: part `{part}` asks for images {start} to {end} of a source that has {size}: "
            f"choose start and stop with 0 <= start < stop <= {size}."
        )
    return range(start, end)
