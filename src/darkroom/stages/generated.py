"""What the stages that generate images write: shards with classes, a grid, and a manifest."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import write_manifest
from darkroom.data.grid import image_grid, save_png
from darkroom.data.images import to_pil
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards

_COLUMNS, _ROWS = 10, 10  # of the grid, a class a column


def numbered(
    batches: Iterable[NDArray[np.uint8]], classes: list[str], kept: list[NDArray[np.uint8]]
) -> Iterator[Sample]:
    """Yield images, uint8 (n, C, H, W) in batches, as samples; image i has class i modulo the number of classes.

    The first images of the first classes go to `kept`, for the grid.
    """
    number = 0
    for batch in batches:
        for image in batch:
            place = number % len(classes) if classes else 0
            if place < _COLUMNS and len(kept) < _ROWS * min(_COLUMNS, len(classes) or _COLUMNS):
                kept.append(image)
            yield Sample(key=f"{number:08d}", image=to_pil(image), label=classes[place] if classes else None)
            number += 1
        print(f"{number:,} images")


def write_generated(
    out: Path, batches: Iterable[NDArray[np.uint8]], classes: list[str], shard_size: int, **metadata: Any
) -> None:
    """Write images with their classes as shards of PNG, a grid, and a manifest with `metadata`."""
    kept: list[NDArray[np.uint8]] = []
    with atomic_folder(out) as folder:
        shards = write_shards(folder, numbered(batches, classes, kept), shard_size, "png")
        columns = min(_COLUMNS, len(classes) or _COLUMNS, len(kept))
        save_png(folder / "grid.png", image_grid(np.stack(kept), columns=columns, scale=2))
        files = {"grid.png": sha256_file(folder / "grid.png")}
        write_manifest(folder, "samples", classes=classes, files=files, **metadata, **shards)
