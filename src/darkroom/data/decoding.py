"""Opens image files of any origin: damage is reported by name, never guessed."""

import os
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO

from PIL import Image, ImageFile, TiffImagePlugin

from darkroom.data.damage import DamageError, Reason
from darkroom.data.formats import FORMATS, ends_early, format_of, other_format, wrong_checksum

CONVERT = "not read; convert it to PNG or JPEG"  # of a format that others read
_DETAIL = 200  # characters of a decoder's message that are stored


def open_image(data: bytes, max_pixels: int) -> Image.Image:
    """Return an image with all its pixels read; its attribute `format` is a key of FORMATS.

    Of an animation or a file with several pages it is the first image. Bytes after the image are ignored. Threads of
    one process decode one after another, because Pillow's settings hold for the whole process.

    Args:
        data: the content of a file.
        max_pixels: images with more pixels are refused before memory is allocated. It replaces Pillow's own limit,
            `Image.MAX_IMAGE_PIXELS`, during the call.

    Raises:
        DamageError: empty, not an image, truncated, corrupt, without pixels, or with too many.
    """
    if not data:
        raise DamageError(Reason.EMPTY)
    name = format_of(data)
    if name is None:
        other = other_format(data)
        raise DamageError(Reason.NOT_AN_IMAGE, f"{other}: {CONVERT}" if other else f"begins with {data[:12]!r}")
    if name == "PNG" and (chunk := wrong_checksum(data)) is not None:
        raise DamageError(Reason.CORRUPT, f"PNG: wrong checksum of {chunk}")
    with _strict(max_pixels):
        file = _File(data)
        image = _opened(name, file)
        if image.width * image.height > max_pixels:
            raise DamageError(Reason.BOMB, f"{image.width} x {image.height} pixels")
        if ends_early(name, data):
            raise DamageError(Reason.TRUNCATED, f"{name}: its end is missing")
        try:
            image.load()
        except Exception as error:  # any error of a decoder means that the file is damaged
            raise _damage(name, error, _cut_tiff(image, file)) from error
        with suppress(Exception):
            image.getexif()  # read now, as it warns of damage
    if name == "PNG":
        _scale_key(image, data[24])
    return image


class _File(BytesIO):
    """A file that records reads beyond its end; `short_header`: whether that happened while the header was read."""

    short = short_header = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes."""
        found = super().read(size)
        self.short |= size is not None and len(found) < size
        return found


def _opened(name: str, file: _File) -> ImageFile.ImageFile:
    """Return an image whose header was read."""
    kind = FORMATS[name].opener
    image = kind.__new__(kind)  # in two steps: the size of a refused header stays readable
    try:
        image.__init__(file, "")  # type: ignore[misc]
    except Exception as error:
        if image.mode and min(image.size) <= 0 and not file.short:
            raise DamageError(Reason.ZERO_SIZE, f"{image.width} x {image.height} pixels") from error
        raise _damage(name, error, file.short or ends_early(name, file.getvalue())) from error
    file.short_header = file.short
    return image


def _scale_key(image: Image.Image, depth: int) -> None:
    """Scale the transparent colour of a PNG, which Pillow leaves in `depth` bits, to the 8 bits of its pixels."""
    key = image.info.get("transparency")
    if isinstance(key, tuple) and depth == 16:
        image.info["transparency"] = tuple(value >> 8 for value in key)  # as Pillow cuts pixels
    elif isinstance(key, int) and image.mode == "L" and depth in (2, 4):
        image.info["transparency"] = key * 255 // (2**depth - 1)


def _damage(name: str, error: Exception, cut: bool) -> DamageError:
    """Return the damage that a decoder's error means; `cut`: the data are known to end too early."""
    text = re.sub(r"<[^<>]* at 0x[0-9a-f]+>", "the file", str(error)) or type(error).__name__
    text = f"{name}: " + "".join(sign if sign.isprintable() else "?" for sign in text)[:_DETAIL]
    if isinstance(error, (Image.DecompressionBombError, MemoryError)) or "MAX_TEXT" in text:
        return DamageError(Reason.BOMB, text)
    if cut or "truncated" in text.lower() or "not enough" in text:
        return DamageError(Reason.TRUNCATED, text)
    return DamageError(Reason.CORRUPT, text)


def _cut_tiff(image: ImageFile.ImageFile, file: _File) -> bool:
    """Return whether the tags of a TIFF, or the pixels of its first image by its tags, reach beyond its end."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return False
    for offsets, counts in ((273, 279), (324, 325)):  # of strips, and of tiles
        with suppress(KeyError, TypeError, ValueError):
            pieces = zip(image.tag_v2[offsets], image.tag_v2[counts], strict=False)
            return file.short_header or max(map(sum, pieces)) > len(file.getvalue())
    return file.short_header


_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)  # a thread that held it is not in the child


@contextmanager
def _strict(max_pixels: int) -> Iterator[None]:
    """Make Pillow refuse more than about `max_pixels`, and truncated files, whatever the settings of the process."""
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
        Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = (max_pixels + 1) // 2, False  # it allows twice that
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = kept
