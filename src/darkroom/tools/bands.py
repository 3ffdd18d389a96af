"""Images in a terminal: a character is an upper half block, two pixels, the lower one its background.

A band for each name, generated images to the left and real ones to the right.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.data.grid import opaque

Images = NDArray[np.uint8]  # (N, C, H, W)
Named = tuple[str, Images]

_BLOCK, _RESET = "▀", "\x1b[0m"
_CUBE = np.array([0, 95, 135, 175, 215, 255])  # levels of the 216 colours of terminals with 256
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

    `rows` are names with generated and with real images, each uint8 (N, C, H, W); `width` is in characters.
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


def colours_of(stream: TextIO, environment: Mapping[str, str] = os.environ) -> int:
    """Return how many colours a stream shows: 2^24, 256, or 0 where it is no terminal or cannot show a half block."""
    term = environment.get("TERM", "dumb")
    try:
        if not stream.isatty() or term == "dumb" or environment.get("NO_COLOR"):
            return 0
        _BLOCK.encode(stream.encoding or "ascii")
    except (ValueError, LookupError):  # closed, or of another encoding
        return 0
    if environment.get("COLORTERM") in ("truecolor", "24bit") or term.endswith("-direct") or "kitty" in term:
        return 1 << 24
    return 256 if "256color" in term else 0


def columns_of_terminal() -> int:
    """Return the characters in a row of the terminal; 80 if unknown."""
    return shutil.get_terminal_size().columns


def half_blocks(image: Image.Image, columns: int, colours: int = 1 << 24) -> str:
    """Return an image as lines of half blocks, shrunk by area to at most `columns` pixels in a row, never enlarged.

    The image has no transparency. `colours` are 2^24, or 256: the nearest of the colour cube.
    """
    width = min(columns, image.width)
    height = max(1, round(image.height * width / image.width))
    codes = _codes(np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BOX)), colours)
    lines = []
    for y in range(0, height, 2):
        lower = [f"48;{code}" for code in codes[y + 1]] if y + 1 < height else ["49"] * width
        pairs = zip(codes[y], lower, strict=True)
        lines.append("".join(f"\x1b[38;{upper};{below}m{_BLOCK}" for upper, below in pairs) + _RESET)
    return "\n".join(lines)


def _codes(pixels: NDArray[np.uint8], colours: int) -> list[list[str]]:
    """Return the code of each pixel (H, W, 3): its colour, or the number of the nearest one in the cube."""
    if colours > 256:
        return [[f"2;{r};{g};{b}" for r, g, b in row] for row in pixels.tolist()]
    levels = np.abs(pixels[..., None].astype(int) - _CUBE).argmin(axis=-1)  # (H, W, 3)
    return [[f"5;{number}" for number in row] for row in (16 + levels @ np.array([36, 6, 1])).tolist()]


def beside(pictures: Sequence[str]) -> str:
    """Return pictures of equal height side by side, a space between them."""
    return "\n".join(" ".join(lines) for lines in zip(*(picture.split("\n") for picture in pictures), strict=True))
