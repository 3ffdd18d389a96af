"""Which images of many are taken where not all are: a seeded draw, never the first ones.

Keys are sorted, and often class by class, so the first images of a split lack classes.
"""

from collections.abc import Sequence

import numpy as np

from darkroom.rng import order


def drawn(total: int, count: int | None = None, seed: int = 0) -> list[int]:
    """Return `count` different row numbers of `total`, at most all; None: all, in the drawn order.

    The draw of 64 begins with the draw of 7, so an image that is made of a row is the same of any request.
    """
    count = total if count is None else min(count, total)
    return order(seed, total, np.arange(count)).tolist() if count else []


def repeats(keys: Sequence[str], captions: Sequence[str | None], rows: Sequence[int]) -> dict[str, int]:
    """Return which of several images with one key and caption was drawn, where it is not the first of them.

    Keys occur in several parts. The manifest of samples holds it, and `original_rows` finds the originals by it.

    Args:
        keys: of all images of the split.
        captions: of all.
        rows: those that were drawn.

    Returns:
        by the place among `rows`, as text: how many of all images before it have its key and caption.
    """
    seen: dict[tuple[str, str | None], int] = {}
    before = []
    for pair in zip(keys, captions, strict=True):
        before.append(seen.get(pair, 0))
        seen[pair] = before[-1] + 1
    return {str(place): before[row] for place, row in enumerate(rows) if before[row]}
