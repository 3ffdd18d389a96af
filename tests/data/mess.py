"""A folder of images as people have them: nested, in several formats, and some of them damaged, each in a known way.

Labels stand in `metadata.csv`, captions in a text beside each image, so `SETTINGS` read it.
"""

import csv
import hashlib
import math
import pickle
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from darkroom.data.damage import Reason
from darkroom.data.keys import key_of

CLASSES = ("green", "red", "yellow")
SETTINGS = {"label": "metadata", "caption": "txt", "classes": list(CLASSES)}
SIZE = 20  # pixels, of the images
SMALLEST = 8  # pixels, what `ingest.min_size` must be for `too_small`
TABLE = "metadata.csv"


def picture(number: int, mode: str = "RGB", size: int = SIZE) -> Image.Image:
    """Return noise that no other number gives."""
    shape = (size, size + number % 5, len(mode))
    noise = hashlib.shake_128(f"{mode} {number}".encode()).digest(math.prod(shape))
    image = Image.frombytes(mode, shape[1::-1], noise)
    if mode == "P":
        image.putpalette(noise[:300])
    return image


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def png(number: int) -> bytes:
    return encoded(picture(number), "PNG", compress_level=1)


def jpeg(number: int) -> bytes:
    return encoded(picture(number), "JPEG")


# Whole images: number to file and its ending.
GOOD: list[tuple[str, Callable[[int], bytes]]] = [
    ("jpg", jpeg),
    ("png", png),
    ("webp", lambda n: encoded(picture(n), "WEBP", lossless=True, method=0)),
    ("JPEG", lambda n: encoded(picture(n, "L"), "JPEG", quality=80)),
    ("png", lambda n: encoded(picture(n, "RGBA"), "PNG", compress_level=1)),
    ("webp", lambda n: encoded(picture(n), "WEBP", method=0)),
    ("jpg", lambda n: encoded(picture(n), "JPEG", progressive=True)),
    ("png", lambda n: encoded(picture(n, "P"), "PNG", compress_level=1)),
    ("bmp", lambda n: encoded(picture(n), "BMP")),
    ("gif", lambda n: encoded(picture(n, "P"), "GIF")),
    ("tif", lambda n: encoded(picture(n), "TIFF")),
    ("jpg", lambda n: encoded(picture(n, "CMYK"), "JPEG")),
]


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_size(width: int, height: int) -> bytes:
    """A few bytes that say that they are a grey PNG of some size."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    data = _chunk(b"IDAT", zlib.compress(bytes(2000)))
    return b"\x89PNG\r\n\x1a\n" + header + data + _chunk(b"IEND", b"")


def _flipped(data: bytes, after: bytes, by: int) -> bytes:
    at = data.index(after) + by
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def faded(number: int) -> Image.Image:
    """Return noise that nobody sees."""
    image = picture(number, "RGBA")
    image.putalpha(0)
    return image


def plain(number: int, size: tuple[int, int]) -> Image.Image:
    return Image.new("RGB", size, tuple(number.to_bytes(3, "big")))


def clear_palette(number: int) -> Image.Image:
    image = Image.new("P", (20 + number % 97, 20 + number % 89))
    image.putpalette(bytes(range(30)))
    return image


def white_on_clear(number: int) -> Image.Image:
    image = Image.new("RGBA", (20, 20), (255, 255, 255, 0))
    image.paste((255, 255, 255, 255), (2, 3, 5 + number % 13, 6 + number % 11))
    return image


# Files that are no whole image: their ending, what is in them, and the reason that is given.
BROKEN: dict[str, tuple[str, Callable[[int], bytes], Reason]] = {
    "truncated_jpeg": ("jpg", lambda n: _half(jpeg(n)), Reason.TRUNCATED),
    "truncated_png": ("png", lambda n: _half(png(n)), Reason.TRUNCATED),
    "truncated_webp": ("webp", lambda n: _half(encoded(picture(n), "WEBP")), Reason.TRUNCATED),
    "truncated_bmp": ("bmp", lambda n: _half(encoded(picture(n), "BMP")), Reason.TRUNCATED),
    "empty": ("jpg", lambda n: b"", Reason.EMPTY),
    "text": ("jpg", lambda n: f"no image, number {n}".encode(), Reason.NOT_AN_IMAGE),
    "html": ("png", lambda n: b"<!DOCTYPE html><title>404</title>" + bytes(n % 7), Reason.NOT_AN_IMAGE),
    "pickle": ("png", lambda n: pickle.dumps({"image": [n] * 50}), Reason.NOT_AN_IMAGE),
    "svg": ("png", lambda n: b'<svg xmlns="http://www.w3.org/2000/svg"><rect/></svg>', Reason.NOT_AN_IMAGE),
    "bomb": ("png", lambda n: png_of_size(60_000, 60_000), Reason.BOMB),
    "smaller_bomb": ("png", lambda n: png_of_size(11_000, 11_000), Reason.BOMB),
    "zero_size": ("png", lambda n: png_of_size(0, 20), Reason.ZERO_SIZE),
    "too_small": ("png", lambda n: encoded(picture(n, "RGB", SMALLEST - 1), "PNG"), Reason.TOO_SMALL),
    "corrupt_png": ("png", lambda n: _flipped(png(n), b"IDAT", 200), Reason.CORRUPT),
    "transparent": ("png", lambda n: encoded(faded(n), "PNG"), Reason.TRANSPARENT),
    "transparent_palette": ("gif", lambda n: encoded(clear_palette(n), "GIF", transparency=0), Reason.TRANSPARENT),
    "one_colour": ("png", lambda n: encoded(plain(n, (20, 30)), "PNG"), Reason.ONE_COLOUR),
    "white_on_clear": ("webp", lambda n: encoded(white_on_clear(n), "WEBP", lossless=True), Reason.ONE_COLOUR),
    "float_tiff": (
        "tiff",
        lambda n: encoded(Image.fromarray(np.full((20, 20), 1e6 + n, np.float32)), "TIFF"),
        Reason.UNSUPPORTED,
    ),
}


class Mess:
    """A folder that samples are added to.

    stored: label and caption of each key that nothing is wrong with; wrong: (key, reason, source) of the others.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stored: dict[str, tuple[str, str]] = {}
        self.wrong: list[tuple[str, str, str]] = []
        self._rows: list[tuple[str, str]] = []

    def good(self, number: int) -> str:
        """Add a whole image; return its path."""
        ending, make = GOOD[number % len(GOOD)]
        label = CLASSES[number % len(CLASSES)]
        path = f"{label}/{('day', 'night/late')[number % 2]}/{number:05d}.{ending}"
        self.add(path, make(number), label, f"number {number}, größer\n".encode())
        self.stored[_key(path)] = label, f"number {number}, größer"
        return path

    def bad(self, way: str, number: int) -> None:
        """Add a sample that is damaged in a way; see WAYS."""
        path = f"{CLASSES[number % len(CLASSES)]}/zz bad/{way}-{number:05d}"  # spaces, and behind the good ones
        if way in BROKEN:
            ending, make, reason = BROKEN[way]
            self.add(f"{path}.{ending}", make(number))
            self._wrong(f"{path}.{ending}", reason)
        else:
            WAYS[way](self, path, number)

    def add(self, path: str, data: bytes | None, label: str | None = "red", caption: bytes | None = b"a text") -> None:
        """Add a file, its caption and its row, each unless it is None."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if data is not None:
            file.write_bytes(data)
        if caption is not None:
            file.with_suffix(".txt").write_bytes(caption)
        if label is not None:
            self._rows.append((path, label))

    def close(self) -> None:
        """Write the table."""
        with (self.root / TABLE).open("w", newline="") as file:
            csv.writer(file).writerows([("file_name", "label"), *self._rows])

    def _wrong(self, path: str, reason: Reason, row: bool = False) -> None:
        source = f"{TABLE} row {len(self._rows) + 1}: {path}" if row else path  # the header is line 1
        self.wrong.append((_key(path), reason.value, source))

    def _link(self, path: str, number: int) -> None:
        self.add(f"{path}.jpg", None)
        (self.root / f"{path}.jpg").symlink_to("nothing.jpg")
        self._wrong(f"{path}.jpg", Reason.UNREADABLE)

    def _folder(self, path: str, number: int) -> None:
        (self.root / f"{path}.jpg").mkdir(parents=True)
        self._wrong(f"{path}.jpg", Reason.UNREADABLE)

    def _duplicate(self, path: str, number: int) -> None:
        first = self.good(len(GOOD) * (10**6 + number))  # a jpg
        again = f"zz/{number}.jpg"
        self.add(again, (self.root / first).read_bytes())
        self._wrong(again, Reason.DUPLICATE)

    def _key_twice(self, path: str, number: int) -> None:
        first = self.good(len(GOOD) * (2 * 10**6 + number))
        again = first.replace(".jpg", ".png")
        self.add(again, png(number), caption=None)  # the text beside the first is beside this one
        self._wrong(again, Reason.KEY_TWICE)

    def _row_again(self, path: str, number: int) -> None:
        self._rows.append((self.good(3 * 10**6 + number), "yellow"))
        self._wrong(self._rows[-1][0], Reason.KEY_TWICE, row=True)

    def _row_alone(self, path: str, number: int) -> None:
        self._rows.append((f"{path}.png", "red"))
        self._wrong(f"{path}.png", Reason.MISSING, row=True)

    def _row_of_text(self, path: str, number: int) -> None:
        self.add(f"{path}.pdf", b"%PDF", caption=None)
        self._wrong(f"{path}.pdf", Reason.NOT_AN_IMAGE, row=True)

    def _no_caption(self, path: str, number: int) -> None:
        self.add(f"{path}.png", png(number), caption=None)
        self._wrong(f"{path}.png", Reason.CAPTION_MISSING)

    def _empty_caption(self, path: str, number: int) -> None:
        self.add(f"{path}.png", png(number), caption=b" \r\n")
        self._wrong(f"{path}.png", Reason.CAPTION_MISSING)

    def _latin_caption(self, path: str, number: int) -> None:
        self.add(f"{path}.png", png(number), caption="größer".encode("cp1252"))
        self._wrong(f"{path}.png", Reason.CAPTION_NOT_UTF8)

    def _no_label(self, path: str, number: int) -> None:
        self.add(f"{path}.png", png(number), label=None)
        self._wrong(f"{path}.png", Reason.LABEL_MISSING)

    def _other_label(self, path: str, number: int) -> None:
        self.add(f"{path}.png", png(number), label="violet")
        self._wrong(f"{path}.png", Reason.LABEL_OUT_OF_RANGE)


# Damage that is not in the bytes of one file.
WAYS: dict[str, Callable[[Mess, str, int], None]] = {
    "broken_link": Mess._link,
    "folder": Mess._folder,
    "duplicate": Mess._duplicate,
    "key_twice": Mess._key_twice,
    "row_again": Mess._row_again,
    "row_alone": Mess._row_alone,
    "row_of_text": Mess._row_of_text,
    "no_caption": Mess._no_caption,
    "empty_caption": Mess._empty_caption,
    "latin_caption": Mess._latin_caption,
    "no_label": Mess._no_label,
    "other_label": Mess._other_label,
}
ALL = (*BROKEN, *WAYS)


def _key(path: str) -> str:
    return key_of(path.rpartition(".")[0])


def make_mess(root: Path, good: int, bad: int) -> Mess:
    """Make a folder of `good` samples that are stored, and `bad` that are not, damaged in all ways in turn."""
    mess = Mess(root)
    for number in range(bad):
        mess.bad(ALL[number % len(ALL)], 10**5 + number)
    for number in range(good - len(mess.stored)):
        mess.good(number)
    mess.close()
    return mess
