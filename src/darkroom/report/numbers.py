"""Format values for the page: numbers with the digits that the error allows, cards, and problems of the data."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from darkroom.data.sources.walk import passed_over_text
from darkroom.report.metadata import Catalog

MINUS = "\N{MINUS SIGN}"
_SIGNIFICANT = 4  # digits of a number without an error
_MOST = 9  # maximum number of decimals


@dataclass(frozen=True)
class Number:
    """A value and, where it is known, its standard error, as numbers and as text; else `few`, the reason."""

    value: float
    text: str
    se: float | None = None
    se_text: str = ""
    few: str = ""


def _decimals(scale: float, significant: int) -> int:
    """Return the number of decimals that gives a number of the magnitude `scale` `significant` significant digits."""
    if not scale:
        return 0
    return min(_MOST, max(0, significant - 1 - math.floor(math.log10(abs(scale)))))


def fixed(value: float, decimals: int) -> str:
    """Return a value with `decimals` decimals, a thousands separator and a minus sign; never a negative zero."""
    text = f"{value:,.{decimals}f}"
    if text.startswith("-") and not text.strip("-0.,"):
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


def number(value: float, se: float | None = None) -> Number:
    """Return a formatted value: with an error, to the second digit of the error; without one, to 4 digits."""
    decimals = _decimals(se, 2) if se else _decimals(value, _SIGNIFICANT)
    text = fixed(value, decimals)
    return Number(value, text) if se is None else Number(value, text, se, fixed(se, decimals if se else 0))


def percent(fraction: float) -> str:
    """Return a fraction in [0, 1] as a percentage with one decimal."""
    return f"{fixed(100 * fraction, 1)}%"


def flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted key, text) for each value in nested mappings; lists and single values are written on one line."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, written(value)


def written(value: Any) -> str:
    """Return a value as text: without quotes, and empty for null and empty lists."""
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, list):
        return "; ".join(map(written, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


DONE = {"quarantine": "left out", "repair": "repaired", "keep": "kept as they are"}


def damage_rows(catalog: Catalog) -> list[tuple[str, str, str, str, int]]:
    """Return part, action, the action as text, reason and number of samples, by part, action, descending number."""
    return [
        (part["name"], action, done, reason, samples)
        for part in catalog.parts
        for action, done in DONE.items()
        for reason, samples in sorted(part["quarantine"][action].items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def passed_over_rows(parts: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return skipped samples of the catalog's parts that are in no list: the part and a line of text each."""
    return [(part["name"], line) for part in parts for line in passed_over_text(part.get("passed_over", {}))]


def range_of(spread: Sequence[int]) -> str:
    """Return minimum, median and maximum in pixels as text; one number where they are equal."""
    if not spread:
        return ""
    least, median, greatest = spread
    return f"{least:,} pixels" if least == greatest else f"{least:,} to {greatest:,} pixels, median {median:,}"
