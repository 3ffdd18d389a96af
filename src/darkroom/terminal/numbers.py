"""Format numbers and tables for people."""

from collections.abc import Collection, Sequence


def count_of(count: float, unit: str = "") -> str:
    """Return a large number with a letter for its magnitude: 1.3 M."""
    for letter, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {letter}{unit}"
    return f"{count:.0f} {unit}".rstrip()


def bytes_of(count: float) -> str:
    """Return a number of bytes with a decimal unit: 1.3 GB."""
    return count_of(count, "B")


def counted(count: int, noun: str) -> str:
    """Return a number and a noun in the singular or plural: 1 part, 1,200 parts."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def time_of(seconds: float) -> str:
    """Return a duration as 3.2 s, 42 s, 1 min 20 s, from ten minutes on as 17 min, then as 1 h 05 min, 4 d 02 h."""
    total = round(seconds)
    for unit, size, below, part, limit in (
        ("d", 86400, "h", 3600, None),
        ("h", 3600, "min", 60, None),
        ("min", 60, "s", 1, 600),
    ):
        if total >= size:
            part_count = total % size // part
            return f"{total // size} {unit}" + (f" {part_count:02} {below}" if limit is None or total < limit else "")
    return f"{seconds:.1f} s" if seconds < 10 else f"{total} s"


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
