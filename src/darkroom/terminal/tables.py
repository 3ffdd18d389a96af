"""Formats tables and amounts for the terminal."""

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,), least: Sequence[int] = ()) -> list[str]:
    """Return rows of cells as lines, with two spaces between columns.

    The columns in `left` are left-aligned, all others are right-aligned; the first ones have the `least` widths.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    widths[: len(least)] = map(max, widths, least)
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def bytes_of(count: float) -> str:
    """Return a number of bytes with a decimal unit: 1.30 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"
