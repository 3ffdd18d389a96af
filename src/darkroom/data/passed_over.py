"""What a source passed over without a row in the list of damage: hidden files, other endings, loops; as numbers."""

from collections.abc import Mapping
from typing import Any

_KEYS = ("hidden", "system", "ignored", "loops")


def passed_over(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts that are not 0 of the entry `source` of a part's manifest; see `walk.Found.counts`."""
    counts = {key: source[key] for key in _KEYS if _any(source.get(key))}
    if isinstance(counts.get("hidden"), int):  # of a part that was written before they were looked into
        counts["hidden"] = {"files": counts["hidden"], "folders": 0, "within": 0, "images": 0}
    return counts


def _any(count: Any) -> bool:
    return any(map(_any, count.values())) if isinstance(count, Mapping) else bool(count)


def passed_over_text(counts: Mapping[str, Any]) -> list[str]:
    """Return what `passed_over` returns as lines for a person."""
    lines = []
    if hidden := counts.get("hidden"):
        lines.append(f"hidden: {_aside(hidden)}")
    if system := counts.get("system"):
        lines.append(f"of the system, {', '.join(system['names'])}: {_aside(system)}")
    if others := counts.get("ignored"):
        by_count = sorted(others.items(), key=lambda item: (-item[1], item[0]))
        lines.append("other endings: " + ", ".join(f"{ending or 'none'} {count:,}" for ending, count in by_count))
    if loops := counts.get("loops"):
        lines.append(f"links to a folder that contains them: {loops:,}")
    return lines


def _aside(counts: Mapping[str, int]) -> str:
    parts = []
    if files := counts["files"]:
        parts.append(_of(files, "file"))
    if folders := counts["folders"]:
        parts.append(f"{_of(folders, 'folder')} with {_of(counts['within'], 'file')}")
    text = ", ".join(parts)
    return f"{text}; with an image's ending {counts['images']:,}" if counts["images"] else text


def _of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
