"""What was wrong with the samples of the sources, as rows of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from darkroom.report.facts import Catalog

_DONE = {"quarantine": "left out", "repair": "mended", "keep": "kept as they are"}


@dataclass(frozen=True)
class DamageRow:
    """What was done with how many samples of a part, and why."""

    part: str
    action: str
    done: str
    reason: str
    samples: int


def damage_rows(catalog: Catalog) -> list[DamageRow]:
    """Return the rows, by part, by what was done, and the most frequent reason first; none where nothing was wrong."""
    return [
        DamageRow(part.name, action, done, reason, samples)
        for part in catalog.parts
        for action, done in _DONE.items()
        for reason, samples in sorted(getattr(part.quarantine, action).items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def range_of(spread: Sequence[int]) -> str:
    """Return the least, the median and the greatest of some pixels in words; one number where they are equal."""
    if not spread:
        return ""
    least, median, greatest = spread
    return f"{least:,} pixels" if least == greatest else f"{least:,} to {greatest:,} pixels, median {median:,}"
