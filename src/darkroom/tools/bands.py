"""Draw images in a terminal: each upper half block shows two pixels, the lower one as its background."""

import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.style import Style

from darkroom.data.grid import opaque
from darkroom.data.images import to_pil

Named = tuple[str, NDArray[np.uint8]]  # a name and its images, (N, C, H, W)

_SYSTEMS = {"truecolor": ColorSystem.TRUECOLOR, "256": ColorSystem.EIGHT_BIT}
_TALL = 200  # maximum lines that a command draws by itself


def drawn_here(rows: Sequence[Named]) -> str:
    """Return names with their images side by side and a final newline, for the end of a command.

    Empty if the terminal cannot show images.
    """
    if (colours := colours_of(sys.stdout)) is None:
        return ""
    lines = []
    for name, images in rows:
        row = to_pil(np.concatenate(list(opaque(images)), axis=2))
        lines += ["".join(letter if letter.isprintable() else "?" for letter in name)]
        lines += half_blocks(row, columns_of_terminal(), colours).split("\n")
    return "\n".join([*lines, ""]) if len(lines) <= _TALL else ""


def colours_of(stream: TextIO) -> ColorSystem | None:
    """Return the colours of a stream, 2^24 or 256; None if it is not a terminal or cannot show half blocks."""
    console = Console(file=stream)
    if console.no_color or not console.encoding.startswith("utf"):
        return None
    return _SYSTEMS.get(console.color_system or "")


def columns_of_terminal() -> int:
    """Return the width of the terminal in characters; 80 if unknown."""
    return shutil.get_terminal_size().columns


def half_blocks(image: Image.Image, columns: int, colours: ColorSystem = ColorSystem.TRUECOLOR) -> str:
    """Return an image as lines of half blocks, reduced by area to at most `columns` pixels wide, never enlarged.

    The image must be opaque. With 256 colours, each pixel gets the nearest one.
    """
    width = min(columns, image.width)
    height = max(1, round(image.height * width / image.width))
    pixels = np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BOX)).tolist()
    pixels += [[None] * width] * (height % 2)
    return "\n".join(
        "".join(_block(above, below, colours) for above, below in zip(upper, lower, strict=True))
        for upper, lower in zip(pixels[::2], pixels[1::2], strict=True)
    )


def _block(above: list[int], below: list[int] | None, colours: ColorSystem) -> str:
    style = Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below) if below else None)
    return style.render("▀", color_system=colours)
