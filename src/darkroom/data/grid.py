"""Draw grids of images, with or without captions."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from darkroom.artifacts.atomic import write_bytes
from darkroom.data.images import encode, to_pil
from darkroom.errors import DarkroomError

_SQUARE = 8  # maximum side of a field of the checkerboard, in pixels
_FIELDS = (255, 204)  # grey levels of the checkerboard
_SIDE = 96  # preferred side of an image on a screen, in pixels


def image_grid(images: NDArray[np.uint8], columns: int, padding: int = 2, scale: int = 1) -> Image.Image:
    """Return images side by side, `columns` in a row, white between and around them (RGBA: transparent).

    `images` are uint8 (N, C, H, W) with C of 1, 3 or 4; N need not fill the last row. `padding` pixels are between and
    around them, after scaling: every pixel becomes a square of scale x scale pixels.

    Returns:
        an image of width columns * (scale * W + padding) + padding, mode L, RGB or RGBA.

    Raises:
        DarkroomError: there are no images, or their dtype or shape is wrong.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or not len(images):
        raise DarkroomError(f"a grid needs at least one image, uint8 (N, C, H, W), not {images.dtype} {images.shape}.")
    large = images.repeat(scale, axis=2).repeat(scale, axis=3)
    count, channels, height, width = large.shape
    rows = -(-count // columns)
    size = (rows * (height + padding) + padding, columns * (width + padding) + padding)
    canvas = blank((channels, *size))
    for number, image in enumerate(large):
        top = padding + number // columns * (height + padding)
        left = padding + number % columns * (width + padding)
        canvas[:, top : top + height, left : left + width] = image
    return to_pil(canvas)


def blank(shape: Sequence[int]) -> NDArray[np.uint8]:
    """Return empty images of shape (..., C, H, W): white, and fully transparent where C is 4."""
    return np.full(shape, 0 if shape[-3] == 4 else 255, dtype=np.uint8)


def shown_scale(size: int) -> int:
    """Return the scale of images of `size` pixels a side in grids for people.

    It is the whole number that brings the image nearest to 96 pixels: 3 for 32, 2 for 64, 1 from 65 on.
    """
    return max(1, (2 * _SIDE + size) // (2 * size))


def contact_sheet(images: NDArray[np.uint8], columns: int) -> Image.Image:
    """Return a grid scaled by a whole number for viewing; that of RGBA images keeps their alpha.

    `images` are uint8 (N, C, H, W) with C of 1, 3 or 4; N need not fill the last row.
    """
    return image_grid(images, columns, scale=shown_scale(images.shape[-1]))


def opaque(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return opaque images unchanged, and transparent ones over a checkerboard.

    `images` are uint8 (N, C, H, W) with C of 1, 3 or 4.

    Returns:
        uint8 (N, C, H, W), C of 3 where it was 4: alpha * colour + (1 - alpha) * board, rounded to the nearest.
    """
    if images.shape[1] != 4:
        return images
    height, width = images.shape[2:]
    side = max(1, min(_SQUARE, min(height, width) // 4))
    dark = (np.arange(height)[:, None] // side + np.arange(width) // side) % 2
    board = np.where(dark, _FIELDS[1], _FIELDS[0])  # (H, W)
    alpha = images[:, 3:].astype(np.int64)
    return ((alpha * images[:, :3] + (255 - alpha) * board + 127) // 255).astype(np.uint8)


def evenly_spaced(count: int, of: int) -> list[int]:
    """Return at most `count` row numbers, evenly spaced from the first to the last of `of` rows."""
    return np.unique(np.linspace(0, of - 1, min(count, of)).round().astype(int)).tolist() if of else []


def save_png(path: Path, image: Image.Image) -> None:
    """Write an image as PNG, whole or not at all; equal pixels give equal bytes."""
    write_bytes(path, encode(image, "png"))


_SIGNS = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014\u2044", "''\"\"--/")
_TEXT, _LINES, _PADDING = 12, 3, 4  # height of a letter in pixels, lines of a caption, padding in pixels


def captioned_grid(groups: Sequence[NDArray[np.uint8]], captions: Sequence[str], columns: int) -> Image.Image:
    """Return groups of images, `columns` groups in a row, each with its caption below, broken into three lines at most.

    A cell has as many lines as the longest caption needs.

    `groups` are each uint8 (K, C, H, W), shown side by side: an original image and the images made from it; `columns`
    of them stand in a row. Text that does not fit is cut off.
    """
    mode = "RGBA" if groups[0].shape[1] == 4 else "RGB"
    pictures = [contact_sheet(group, len(group)).convert(mode) for group in groups]
    width, height = pictures[0].size
    font = ImageFont.load_default(size=_TEXT)
    lines = [_lines(_drawable(caption), width, font)[:_LINES] for caption in captions]
    cell = width + _PADDING, height + max(map(len, lines)) * (_TEXT + 2) + _PADDING
    rows = -(-len(groups) // columns)
    canvas = Image.new(mode, (columns * cell[0] + _PADDING, rows * cell[1] + _PADDING), "white")
    drawing = ImageDraw.Draw(canvas)
    for number, (picture, broken) in enumerate(zip(pictures, lines, strict=True)):
        left = _PADDING + number % columns * cell[0]
        top = _PADDING + number // columns * cell[1]
        canvas.paste(picture, (left, top))
        for line, words in enumerate(broken):
            drawing.text((left + 2, top + height + line * (_TEXT + 2)), words, fill="black", font=font)
    return canvas


def _drawable(text: str) -> str:
    """Return a text whose letters have no accents, with plain quotes and dashes: Pillow's own font only has ASCII."""
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
