"""Draws real images beside generated ones, for people: `real.png` and `neighbours.png` of `samples/nearest/NAME/`.

Both have a class a column, as the grid of samples; of fewer than two classes, as many images in a row. Beside images
of stored captions stand those that the captions are of.
"""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darkroom.data.catalog_writer import shown_rows
from darkroom.data.draw import drawn
from darkroom.data.grid import contact_sheet, save_png
from darkroom.data.reader import ImageShards
from darkroom.metrics.memorisation import Near
from darkroom.stages.generated import CAPTIONED, save_captioned

REAL, NEIGHBOURS = "real.png", "neighbours.png"
COLUMNS = 10  # as in the grid of samples
_REAL_ROWS, _MADE_ROWS = 5, 3
SPACES = ("features", "pixels")  # in which neighbours are shown


def columns_of(labels: Sequence[str | None], classes: Sequence[str]) -> list[str]:
    """Return the classes of the columns: the first ten, in the order of `classes`, that `labels` holds.

    Images of one class stand in no column, but in rows.
    """
    there = set(labels)
    return [name for name in dict.fromkeys(classes) if name in there][:COLUMNS]


def draw_real(path: Path, train: ImageShards, columns: Sequence[str]) -> None:
    """Draw real images at random: five of each class, or as many rows of one class or of any."""
    rows = shown_rows(train)  # of all that are remote, a few shards are fetched
    labels = np.array(train.labels, dtype=object)[rows]
    if len(columns) > 1:
        chosen = [_taken(rows[labels == name], _REAL_ROWS) for name in columns]
        places = [
            column[row] if row < len(column) else None for row in range(max(map(len, chosen))) for column in chosen
        ]
        width = len(columns)
    else:
        places = list(_taken(rows[labels == columns[0]] if columns else rows, COLUMNS * _REAL_ROWS))
        width = min(COLUMNS, max(1, len(places)))
    save_png(path, contact_sheet(_images(train, places), width))


def draw_originals(path: Path, made: ImageShards, images: ImageShards) -> bool:
    """Draw the real images that the captions of the first samples are of, in the places of these; return whether.

    Args:
        path: the PNG.
        made: the samples.
        images: the split of the captions.
    """
    captions = [caption or "" for caption in made.captions[:CAPTIONED]]
    rows = originals(captions, images)
    if rows is None:
        return False
    save_captioned(path, list(images.__getitems__(rows)), captions)
    return True


def originals(captions: Sequence[str], images: ImageShards) -> list[int] | None:
    """Return the row of an image for each caption; of one that several images have, the next one each time.

    None: a caption (in place of a missing one, a key) is of no image, or the images are remote.
    """
    if images.remote:
        return None
    rows: dict[str, list[int]] = {}
    for row, (key, caption) in enumerate(zip(images.keys_of(range(len(images))), images.captions, strict=True)):
        rows.setdefault(caption or key, []).append(row)
    if not rows.keys() >= set(captions):
        return None
    turns = {caption: cycle(of) for caption, of in rows.items()}
    return [next(turns[caption]) for caption in captions]


def _taken(rows: NDArray[np.int64], count: int) -> list[int]:
    """Return some of these rows, drawn at random."""
    return [int(rows[at]) for at in drawn(len(rows), count)]


def draw_neighbours(path: Path, made: ImageShards, near: Near, train: ImageShards, columns: Sequence[str]) -> int:
    """Draw the first generated images that were looked for, and below each its nearest training image in each space.

    Returns:
        the number of rows of generated images, at most three.
    """
    order = sorted(range(len(near.rows)), key=near.rows.__getitem__)  # places in `near.rows`
    if len(columns) > 1:
        labels = made.labels
        by_class = [[at for at in order if labels[near.rows[at]] == name][:_MADE_ROWS] for name in columns]
    else:
        by_class = [order[column : COLUMNS * _MADE_ROWS : COLUMNS] for column in range(min(COLUMNS, len(order)))]
    sheets = []
    for row in range(max(map(len, by_class))):
        places = [of[row] if row < len(of) else None for of in by_class]
        sheets.append(_images(made, [None if at is None else near.rows[at] for at in places]))
        for space in SPACES:
            found = near.found[space].row
            sheets.append(_images(train, [None if at is None else int(found[at]) for at in places]))
    save_png(path, contact_sheet(np.concatenate(sheets), len(by_class)))
    return len(sheets) // (1 + len(SPACES))


def _images(shards: ImageShards, rows: Sequence[int | None]) -> NDArray[np.uint8]:
    """Return the images of rows, uint8 (N, C, H, W); white, and opaque, where there is none."""
    found = np.full((len(rows), *shards.image_shape), 255, dtype=np.uint8)
    there = [place for place, row in enumerate(rows) if row is not None]
    if there:
        found[there] = shards.__getitems__([row for row in rows if row is not None])
    return found
