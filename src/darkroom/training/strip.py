"""A training as a strip of pictures: the same few images, from the same noise, at each doubling of the images seen.

A declared output beside the curves, so it follows from parameters alone, not from `run.grid_every`; doublings need no
end that is known beforehand. What is drawn already lies in the checkpoints: a killed training continues the strip.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.artifacts.atomic import write_json
from darkroom.data.grid import contact_sheet, save_png
from darkroom.errors import DarkroomError
from darkroom.training.recipe import Recipe

Strip = dict[int, NDArray[np.uint8]]  # images seen to the images drawn then, (N, C, H, W)

PICTURE, FACTS = "strip.png", "strip.json"
FIRST = 1000  # images seen when the first one is drawn
KEPT = 8  # points: the last doublings, and the end
_SIDE = 128  # pixels to which larger images are reduced: they lie in every checkpoint


def is_due(before: int, images: int, end: int) -> bool:
    """Return whether a doubling of `FIRST` lies in (before, images], or the training ends at `images`."""
    return images == end or before < _last_doubling(images) <= images


def points(end: int) -> int:
    """Return how often a training of so many images draws."""
    return (end // FIRST).bit_length() + (_last_doubling(end) != end)


def _last_doubling(images: int) -> int:
    """Return the last doubling of `FIRST` up to `images`, or `FIRST` itself before it."""
    return FIRST << max(0, (images // FIRST).bit_length() - 1)


@torch.no_grad()
def draw(
    drawn: Strip,
    recipe: Recipe,
    images: int,
    evaluating: Callable[[bool], AbstractContextManager[None]],
    first: bool = True,
) -> None:
    """Draw the images of the averaged weights as they are, and drop the oldest ones; a recipe without any draws none.

    A failure is printed and leaves them out: a picture is no reason to lose a training. With sharded weights every
    process must call it; otherwise the first one.

    Args:
        drawn: gets the images of the recipe's strip.
        recipe: makes them.
        images: seen so far.
        evaluating: gives the modules averaged weights (True) inside a block.
        first: whether this process keeps them.
    """
    try:
        with evaluating(True):
            pixels = recipe.strip()
    except (RuntimeError, DarkroomError) as error:
        print(f"nothing in the strip at image {images:,}: {error}")
        return
    if pixels is not None and first:
        drawn[images] = reduced(np.asarray(pixels))
        for old in sorted(drawn)[:-KEPT]:
            del drawn[old]


def reduced(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images (N, C, H, W), by whole factors reduced to at most 128 pixels a side: means, rounded down."""
    factor = -(-max(images.shape[2:]) // _SIDE)
    if factor == 1:
        return images.copy()
    height, width = (side // factor for side in images.shape[2:])
    squares = images[:, :, : height * factor, : width * factor].reshape(
        *images.shape[:2], height, factor, width, factor
    )
    return squares.mean(axis=(3, 5)).astype(np.uint8)


def write(folder: Path, drawn: Strip, recipe: Recipe) -> None:
    """Write the strip: a row for each point, above them the originals where there are some; nothing without images."""
    if not drawn:
        return
    points = sorted(drawn)
    originals = recipe.originals()
    rows = [drawn[images] for images in points]
    rows = rows if originals is None else [reduced(np.asarray(originals)), *rows]
    save_png(folder / PICTURE, contact_sheet(np.concatenate(rows), len(rows[0])))
    facts = {"images": points, "originals": originals is not None, "by_class": recipe.by_class}
    write_json(folder / FACTS, facts | ({"captions": list(recipe.captions)} if recipe.captions else {}))
