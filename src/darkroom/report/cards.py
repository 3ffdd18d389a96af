"""Formats cards and settings as rows of text: nested JSON values, flattened."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


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
