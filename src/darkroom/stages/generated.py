"""Write the outputs of stages that generate images: shards with classes, a grid, and a manifest."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import sha256_file, write_manifest
from darkroom.data.grid import blank, captioned_grid, contact_sheet, save_png
from darkroom.data.images import to_pil
from darkroom.data.npz import npz_writer
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards
from darkroom.terminal.terminal import with_progress

GRID, NPZ = "grid.png", "samples.npz"
_COLUMNS, _ROWS = 10, 10  # of the grid, with one class per column
_GROUPS = 8, 8  # of the grid with captions: images in a row, and rows
CAPTIONED = math.prod(_GROUPS)

Images = NDArray[np.uint8]  # (N, C, H, W)


class _Shown:
    """The images of the grid: the first ones of the first classes, one class per column.

    With fewer than two classes, or with captions, which are written below, they are the first images.
    """

    def __init__(self, labels: NDArray[np.int64] | None, captions: Sequence[str] | None = None) -> None:
        self._captions = captions
        classes = [] if labels is None or captions is not None else np.unique(labels)[:_COLUMNS].tolist()
        plain = len(classes) < 2
        columns = [None] if plain else classes
        self._most = _ROWS * (_COLUMNS if plain else 1) if captions is None else CAPTIONED
        self._columns: dict[int | None, list[Images]] = {label: [] for label in columns}

    def add(self, image: Images, label: int | None) -> None:
        """Store the next image, (C, H, W), if the grid shows it."""
        column = self._columns.get(None if None in self._columns else label)
        if column is not None and len(column) < self._most:
            column.append(image.copy())  # else the batch that it lies in would stay in memory

    def save(self, path: Path) -> None:
        """Write the grid; columns of classes with fewer images end in white."""
        columns = list(self._columns.values())
        if self._captions is not None:
            save_captioned(path, columns[0], self._captions)
            return
        if None in self._columns:
            images, width = columns[0], min(_COLUMNS, len(columns[0]))
        else:
            empty, width = blank(columns[0][0].shape), len(columns)
            images = [image for row in zip_longest(*columns, fillvalue=empty) for image in row]
        save_png(path, contact_sheet(np.stack(images), width))


def save_captioned(path: Path, images: Sequence[Images], captions: Sequence[str]) -> None:
    """Write the first images, (C, H, W) each, eight in a row and eight rows at most, with their captions below."""
    groups = [image[None] for image in images[:CAPTIONED]]
    save_png(path, captioned_grid(groups, captions[: len(groups)], _GROUPS[0]))


def _numbered(
    batches: Iterable[Images],
    classes: Sequence[str],
    labels: NDArray[np.int64] | None,
    captions: Sequence[str] | None,
    also: Sequence[Callable[[Images, int | None], None]],
) -> Iterator[Sample]:
    """Yield images, (n, C, H, W) in batches, as samples; `also` are called with each and its class number."""
    number = 0
    for batch in batches:
        for image in batch:
            label = None if labels is None else int(labels[number])
            for each in also:
                each(image, label)
            caption = None if captions is None else captions[number]
            yield Sample(f"{number:08d}", to_pil(image), None if label is None else classes[label], caption)
            number += 1


def write_generated(
    out: Path,
    batches: Iterable[Images],
    classes: list[str],
    shard_size: int,
    *,
    images: int,
    image_shape: Sequence[int],
    labels: NDArray[np.int64] | None = None,
    captions: Sequence[str] | None = None,
    npz: bool = False,
    **metadata: Any,
) -> None:
    """Write images with their classes as shards of PNG, a grid, and a manifest with `metadata`.

    Args:
        out: the folder.
        batches: the images, uint8 (n, C, H, W).
        classes: the names of the classes.
        shard_size: images in a shard.
        images: N, their number.
        image_shape: (C, H, W) of each.
        labels: the class number of each image, (N,); None: they have no classes.
        captions: the caption of each image, also shown in the grid; None: no captions.
        npz: whether to also write the images as one `.npz` file.
        metadata: additional entries of the manifest.
    """
    channels, height, width = image_shape
    shown = _Shown(labels, captions)
    with atomic_folder(out) as folder, ExitStack() as stack:
        also: list[Callable[[Images, int | None], None]] = [shown.add]
        if npz:
            append = stack.enter_context(npz_writer(folder / NPZ, images, (channels, height, width)))
            also.append(lambda image, label: append(image))
        samples = _numbered(with_progress(batches, images, "made"), classes, labels, captions, also)
        shards = write_shards(folder, samples, shard_size, "png")
        stack.close()
        shown.save(folder / GRID)
        files = {name: sha256_file(folder / name) for name in (GRID, NPZ) if (folder / name).is_file()}
        counts = [] if labels is None else np.bincount(labels, minlength=len(classes)).tolist()
        write_manifest(
            folder,
            "samples",
            classes=classes,
            images=images,
            image_shape=list(image_shape),
            files=files,
            counts=_by_class(classes, counts),
            **metadata,
            **shards,
        )


def _by_class(classes: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    """Return counts by class name; if several classes share a name, it is followed by the class number.

    ImageNet has two classes called crane.
    """
    several = {name for name, times in Counter(classes).items() if times > 1}
    names = (f"{name} ({number})" if name in several else name for number, name in enumerate(classes))
    return dict(zip(names, counts, strict=bool(counts)))
