"""Cards and settings as rows of text: a nested JSON value, flattened, with every value written out."""

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
    """Return a value as it is read: text without quotes, nothing for null and for what is empty."""
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, list):
        return "; ".join(map(written, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
