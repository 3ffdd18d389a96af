"""Draw a seeded subset of images, and find the original image of a sample."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.reader import ImageShards
from darkroom.rng import order


def drawn(total: int, count: int | None = None, seed: int = 0) -> list[int]:
    """Return `count` different row numbers below `total`, in random order, at most all; None: all.

    The draw of 64 starts with the draw of 7, so the image made from a row does not depend on the count.
    """
    count = total if count is None else min(count, total)
    return order(seed, total, np.arange(count)).tolist() if count else []


def repeats(keys: Sequence[str], captions: Sequence[str | None], rows: Sequence[int]) -> dict[str, int]:
    """Return which of several images with the same key and caption was drawn, unless it is the first.

    Keys occur in several parts. The manifest of samples holds it, and `original_rows` finds the originals by it.

    Returns:
        by the place among `rows`, as text: the number of earlier images with its key and caption.
    """
    counts: dict[tuple[str, str | None], int] = {}
    before = []
    for pair in zip(keys, captions, strict=True):
        before.append(counts.get(pair, 0))
        counts[pair] = before[-1] + 1
    return {str(place): before[row] for place, row in enumerate(rows) if before[row]}


def original_rows(samples: ImageShards, originals: ImageShards, repeats: Mapping[str, int], folder: Path) -> list[int]:
    """Return the row of the original of each sample.

    Samples are made from embeddings or captions of the images of a split, with their keys, in any order; `repeats`
    tells images with the same key and caption apart. `folder` is that of the samples, for messages.

    Raises:
        ArtifactError: an original is missing, or has another caption; the message names the key.
    """
    rows: defaultdict[tuple[str, str | None], list[int]] = defaultdict(list)
    for row, (key, caption) in enumerate(zip(originals.keys, originals.captions, strict=True)):
        rows[key, caption].append(row)
    original_numbers = []
    for place, (key, caption) in enumerate(zip(samples.keys, samples.captions, strict=True)):
        several, number = rows[key, caption], repeats.get(str(place), 0)
        if number >= len(several):
            raise ArtifactError(
                f"{folder}: {key} was made for the caption {caption!r}, but no image of the split has both: run "
                "`dvc repro` to make the samples again."
            )
        original_numbers.append(several[number])
    return original_numbers
