"""Images in a terminal: each character is an upper half block, two pixels, the lower one its background."""

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_BLOCK, _RESET = "▀", "\x1b[0m"
_CUBE = np.array([0, 95, 135, 175, 215, 255])  # levels of the 216 colours of terminals with 256


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

    Args:
        image: of any mode without transparency.
        columns: characters in a row.
        colours: 2^24, or 256: the nearest of the colour cube.
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
