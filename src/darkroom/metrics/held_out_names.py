"""What distances from held-out images are called, and when there are some. Loads no torch."""

from collections.abc import Mapping

ENOUGH = 10  # held-out images a feature


def held_out_names(distances: Mapping[str, float]) -> dict[str, float]:
    """Return distances under the names that they have from held-out images: `fd_held_out`, `fd_held_out_se`."""
    found = {}
    for name, value in distances.items():
        first, _, rest = name.partition("_")
        found[f"{first}_held_out_{rest}".rstrip("_")] = value
    return found
