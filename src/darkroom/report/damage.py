"""The tables of damaged samples of the sources, and of what was passed over."""

from collections.abc import Sequence
from dataclasses import dataclass

from darkroom.data.sources.walk import passed_over_text
from darkroom.report.metadata import Catalog

_DONE = {"quarantine": "left out", "repair": "mended", "keep": "kept as they are"}


@dataclass(frozen=True)
class DamageRow:
    """The number of samples of a part with one action and one reason; `done`: the action as text."""

    part: str
    action: str
    done: str
    reason: str
    samples: int


def damage_rows(catalog: Catalog) -> list[DamageRow]:
    """Return the rows by part, action, and descending number of samples."""
    return [
        DamageRow(part.name, action, done, reason, samples)
        for part in catalog.parts
        for action, done in _DONE.items()
        for reason, samples in sorted(getattr(part.quarantine, action).items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def passed_over_rows(catalog: Catalog) -> list[tuple[str, str]]:
    """Return what was passed over, in no list: the part and a line of text each."""
    return [(part.name, line) for part in catalog.parts for line in passed_over_text(part.passed_over)]


def range_of(spread: Sequence[int]) -> str:
    """Return minimum, median and maximum in pixels as text; one number where they are equal."""
    if not spread:
        return ""
    least, median, greatest = spread
    return f"{least:,} pixels" if least == greatest else f"{least:,} to {greatest:,} pixels, median {median:,}"
