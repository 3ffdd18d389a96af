"""Grids of images with words below them, for people to look at."""

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from darkroom.data.grid import contact_sheet

_SIGNS = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014\u2044", "''\"\"--/")
_TEXT, _LINES, _PADDING = 12, 3, 4  # height of a letter in pixels, lines of a caption, padding in pixels


def captioned_grid(groups: Sequence[NDArray[np.uint8]], captions: Sequence[str], columns: int) -> Image.Image:
    """Return groups of images, `columns` groups in a row, each with its caption below, broken into three lines at most.

    A cell has as many lines as the longest caption needs.

    Args:
        groups: each uint8 (K, C, H, W), shown side by side: an original image and the images made from it.
        captions: one caption for each group; text that does not fit is cut off.
        columns: the number of groups in a row.
    """
    pictures = [contact_sheet(group, len(group)).convert("RGB") for group in groups]
    width, height = pictures[0].size
    font = ImageFont.load_default(size=_TEXT)
    lines = [_lines(_drawable(caption), width, font)[:_LINES] for caption in captions]
    cell = width + _PADDING, height + max(map(len, lines)) * (_TEXT + 2) + _PADDING
    rows = -(-len(groups) // columns)
    canvas = Image.new("RGB", (columns * cell[0] + _PADDING, rows * cell[1] + _PADDING), "white")
    drawing = ImageDraw.Draw(canvas)
    for number, (picture, broken) in enumerate(zip(pictures, lines, strict=True)):
        left = _PADDING + number % columns * cell[0]
        top = _PADDING + number // columns * cell[1]
        canvas.paste(picture, (left, top))
        for line, words in enumerate(broken):
            drawing.text((left + 2, top + height + line * (_TEXT + 2)), words, fill="black", font=font)
    return canvas


def _drawable(text: str) -> str:
    """Return a text whose letters have no accents, with plain quotes and dashes: Pillow's own font has ASCII alone."""
    return "".join(_plain(letter) for letter in unicodedata.normalize("NFC", text).translate(_SIGNS))


def _plain(letter: str) -> str:
    apart = unicodedata.normalize("NFKD", letter).translate(_SIGNS)
    return apart.encode("ascii", "ignore").decode() or ("" if unicodedata.category(letter) == "Mn" else letter)


def _lines(caption: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> list[str]:
    """Return a caption in lines that fit a width; a word that is longer stands alone."""
    lines: list[str] = []
    for word in caption.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
