"""Images in a terminal: a band for each name, generated images to the left and real ones to the right."""

import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.data.grid import opaque
from darkroom.terminal.half_blocks import beside, colours_of, columns_of_terminal, half_blocks

Images = NDArray[np.uint8]  # (N, C, H, W)
Named = tuple[str, Images]

_LEAST, _MOST, _ROOM = 16, 32, 4  # pixels of a side, and images that fit in a row before they grow
_TALL = 200  # lines that a command draws unasked, at most


def side_of(width: int) -> int:
    """Return the side of an image in pixels: four fit in a row, from 16 to 32 pixels each."""
    return min(_MOST, max(_LEAST, (width + 1) // _ROOM - 1))


def count_of(width: int) -> int:
    """Return how many images fit in a row."""
    return max(1, (width + 1) // (side_of(width) + 1))


def bands(rows: Iterable[tuple[str, Images, Images]], width: int, colours: int) -> Iterator[str]:
    """Yield for each name a line with it, and its images: generated ones, then real ones, as many as fit.

    Args:
        rows: names with generated and with real images, each uint8 (N, C, H, W).
        width: characters in a row.
        colours: see `half_blocks`.
    """
    side, room = side_of(width), count_of(width)
    for name, made, real in rows:
        left = min(len(made), room - min(len(real), room // 2))
        images = [*made[:left], *real[: room - left]]
        yield _heading(name, left if len(real) else 0, side, width)
        yield beside([half_blocks(_drawn(image, side), side, colours) for image in images])


def _heading(name: str, made: int, side: int, width: int) -> str:
    """Return a name, and above the first real image the word for it; cut to the width."""
    at, name = made * (side + 1), "".join(letter if letter.isprintable() else "?" for letter in name)
    return (f"{name[: at - 1]:<{at}}real" if at else name)[:width]


def _drawn(image: Images, side: int) -> Image.Image:
    """Return an image (C, H, W) at a side of `side` pixels: shrunk by area, or enlarged in whole pixels."""
    pixels = opaque(image[None])[0]
    grown = pixels.repeat(max(1, side // image.shape[-1]), axis=1).repeat(max(1, side // image.shape[-1]), axis=2)
    colours = grown if len(grown) == 3 else grown.repeat(3, axis=0)
    return Image.fromarray(np.ascontiguousarray(colours.transpose(1, 2, 0)))


def drawn_here(rows: Sequence[Named]) -> str:
    """Return bands and the end of a line, for the end of a command; nothing where the terminal cannot show them."""
    width, colours = columns_of_terminal(), colours_of(sys.stdout)
    if not colours or width <= _LEAST or len(rows) * (1 + side_of(width) // 2) > _TALL:
        return ""
    return "\n".join(bands(((name, images, images[:0]) for name, images in rows), width, colours)) + "\n"
