"""What distances from held-out images are called, when there are some, and classes in a sentence. Loads no torch."""

from collections.abc import Mapping, Sequence

ENOUGH = 10  # held-out images a feature
_LISTED = 5  # names in a sentence


def held_out_names(distances: Mapping[str, float]) -> dict[str, float]:
    """Return distances under the names that they have from held-out images: `fd_held_out`, `fd_held_out_se`."""
    found = {}
    for name, value in distances.items():
        first, _, rest = name.partition("_")
        found[f"{first}_held_out_{rest}".rstrip("_")] = value
    return found


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence, those of many classes not all."""
    more = len(names) - _LISTED
    return f"{', '.join(names[:_LISTED])} and {more:,} more" if more > 0 else ", ".join(names)
