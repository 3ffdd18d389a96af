"""Pictures in a terminal: each character is an upper half block, two pixels, the lower one its background."""

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
    """Return the characters in a row of the terminal; 80 where nobody knows."""
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
    pixels = np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BOX))
    codes = _true(pixels) if colours > 256 else _cube(pixels)
    lines = []
    for y in range(0, height, 2):
        line, before = "", ("", "")
        for x in range(width):
            # Of an odd number of rows the last one has no lower half.
            now = f"38;{codes[y, x]}", f"48;{codes[y + 1, x]}" if y + 1 < height else "49"
            changed = [code for code, old in zip(now, before, strict=True) if code != old]
            line += (f"\x1b[{';'.join(changed)}m" if changed else "") + _BLOCK
            before = now
        lines.append(line + _RESET)
    return "\n".join(lines)


def _true(pixels: NDArray[np.uint8]) -> NDArray[np.object_]:
    """Return the code of each pixel (H, W, 3), with red, green and blue."""
    return np.array([[f"2;{r};{g};{b}" for r, g, b in row] for row in pixels.tolist()], dtype=object)


def _cube(pixels: NDArray[np.uint8]) -> NDArray[np.object_]:
    """Return the code of each pixel (H, W, 3), with the number of the nearest colour of the cube."""
    levels = np.abs(pixels[..., None].astype(int) - _CUBE).argmin(axis=-1)  # (H, W, 3)
    numbers = 16 + levels @ np.array([36, 6, 1])
    return np.array([[f"5;{number}" for number in row] for row in numbers.tolist()], dtype=object)


def beside(pictures: Sequence[str]) -> str:
    """Return pictures of equal height side by side, a space between them."""
    return "\n".join(" ".join(lines) for lines in zip(*(picture.split("\n") for picture in pictures), strict=True))
