"""What looks wrong with classes: names that nearly agree, and classes without an image to train on. Both are warned."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

_SHOWN = 10  # classes, or groups of them, in a warning


def near_names(names: Iterable[str]) -> list[list[str]]:
    """Return the groups of names that differ in case, accents, blanks, `_`, `-`, `.`, leading zeros or a plural alone.

    Names of one character never do: A and a are letters.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_folded(name), []).append(name)
    for key in sorted(groups):
        for plural in _plurals(key):
            if key in groups and plural in groups:
                groups[key] += groups.pop(plural)
    return [sorted(group) for _, group in sorted(groups.items()) if len(group) > 1]


def _plurals(name: str) -> list[str]:
    """Return the English plurals of a name: dogs, buses, puppies."""
    if len(name) < 2 or name[-1].isdigit():
        return []
    if re.search("[^aeiou]y$", name):
        return [f"{name}s", f"{name[:-1]}ies"]
    return [f"{name}s", f"{name}es"] if name.endswith(("s", "x", "z", "ch", "sh", "o")) else [f"{name}s"]


def _folded(name: str) -> str:
    """Return what names that nearly agree have in common; accents are those of Latin letters, as й is no и."""
    if len(name) == 1:
        return name
    latin = re.sub(r"(?<=[a-z])[\u0300-\u036f]+", "", unicodedata.normalize("NFKD", name).casefold())
    plain = re.sub(r"[\s_.-]+", "", latin)
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", plain) or name


def untrained(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the classes that have images, and none in the train split.

    Args:
        counts: for each split, the number of images of each class, as the catalog has them.
    """
    names = dict.fromkeys(name for of in counts.values() for name, images in of.items() if images)
    return [name for name in names if not counts["train"].get(name)]


def class_warnings(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each thing that looks wrong with the classes; `counts` as for `untrained`."""
    lines = []
    if groups := near_names(dict.fromkeys(name for of in counts.values() for name in of)):
        shown = "; ".join(" and ".join(map(repr, group)) for group in groups[:_SHOWN])
        lines.append(f"classes whose names nearly agree, are they one? {_cut(shown, groups)}")
    if names := untrained(counts):
        which = _cut(", ".join(map(repr, names[:_SHOWN])), names)
        lines.append(f"classes without a training image, so that nothing learns them: {which}: add images of them")
    return lines


def _cut(text: str, found: Sequence[object]) -> str:
    return text if len(found) <= _SHOWN else f"{text} and {len(found) - _SHOWN:,} more"
