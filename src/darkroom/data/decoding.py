"""Open image files of any origin, and report damage by name; nothing is guessed.

Each format begins with a signature. Formats without a signature (TGA), drawings (SVG, PDF), and formats that need
another program (EPS: Ghostscript) are not supported.
"""

import os
import re
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from darkroom.data.damage import DamageError, Reason


@dataclass(frozen=True)
class Format:
    """signature: the first bytes of a file; opener: the class of Pillow; extensions: of file names, in lower case."""

    signature: re.Pattern[bytes]
    opener: type[ImageFile.ImageFile]
    extensions: frozenset[str]


def _format(signature: bytes, opener: type[ImageFile.ImageFile], *extensions: str) -> Format:
    return Format(re.compile(signature, re.DOTALL), opener, frozenset(extensions))


# By Pillow's name of the format. A multi-picture file (MPO) is a JPEG with further images; its first image is read.
FORMATS = {
    "JPEG": _format(rb"\xff\xd8\xff", JpegImagePlugin.JpegImageFile, "jpg", "jpeg", "jpe", "jfif", "mpo"),
    "PNG": _format(rb"\x89PNG\r\n\x1a\n", PngImagePlugin.PngImageFile, "png", "apng"),
    "WEBP": _format(rb"RIFF....WEBP", WebPImagePlugin.WebPImageFile, "webp"),
    "GIF": _format(rb"GIF8[79]a", GifImagePlugin.GifImageFile, "gif"),
    # The second header has one of the defined lengths: a text may also begin with BM.
    "BMP": _format(rb"BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\0\0\0", BmpImagePlugin.BmpImageFile, "bmp", "dib"),
    "TIFF": _format(rb"II[*+]\0|MM\0[*+]", TiffImagePlugin.TiffImageFile, "tif", "tiff"),
    "PPM": _format(rb"P[4-6f][\s#]", PpmImagePlugin.PpmImageFile, "ppm", "pgm", "pbm", "pnm", "pfm"),
    "AVIF": _format(rb"....ftyp(avi[fs]|m[is]f1(?=.{0,48}avi[fs]))", AvifImagePlugin.AvifImageFile, "avif", "avifs"),
    "JPEG2000": _format(
        rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n",
        Jpeg2KImagePlugin.Jpeg2KImageFile,
        *("jp2", "j2k", "j2c", "jpc", "jpf", "jpx"),
    ),
}

_HEIC, _JXL = rb"....ftyp(he[iv][cxmsf]|m[is]f1)", rb"\xff\x0a|\0\0\0\x0cJXL \r\n"
# Plugins of Pillow, the extra `formats`. That of JPEG XL decodes before it tells the number of pixels.
with suppress(ImportError):
    from pillow_heif.as_plugin import HeifImageFile

    FORMATS["HEIF"] = _format(_HEIC, HeifImageFile, "heic", "heif", "hif")
with suppress(ImportError):
    from pillow_jxl.JpegXLImagePlugin import JXLImageFile

    FORMATS["JXL"] = _format(_JXL, JXLImageFile, "jxl")

# Image formats that are recognised but not read.
_OTHERS = {
    "HEIC": re.compile(_HEIC, re.DOTALL),
    "JPEG XL": re.compile(_JXL),
    "PSD": re.compile(rb"8BPS"),
    "PDF": re.compile(rb"%PDF-"),
    "PostScript": re.compile(rb"%!PS|\xc5\xd0\xd3\xc6"),
    "SVG": re.compile(
        rb"(\xef\xbb\xbf)?\s*(<\?xml.{0,300}?)?(<!--.{0,300}?-->\s*)?(<!DOCTYPE svg.{0,300}?)?<svg", re.DOTALL
    ),
}


def ends_early(name: str, data: bytes) -> bool:
    """Return whether the end marker of a file is missing, for formats whose decoders may not notice.

    libjpeg decodes the zeros of a preallocated, unfinished download as grey pixels, and OpenJPEG leaves missing pixels
    black. In both formats a marker ends the image, and that marker cannot occur in the data.
    """
    match name:
        case "JPEG":
            return not data.endswith(b"\xff\xd9") and data.find(b"\xff\xd9", _first_scan(data)) < 0
        case "JPEG2000":
            return data.find(b"\xff\xd9") < 0
        case "WEBP":
            return int.from_bytes(data[4:8], "little") + 8 > len(data)
    return False


def _first_scan(data: bytes) -> int:
    """Return the offset of the pixels of a JPEG; thumbnails come before it."""
    at = 2
    while data[at : at + 1] == b"\xff":
        marker = data[at + 1 : at + 2]
        if marker == b"\xff":  # padding
            at += 1
            continue
        if marker == b"\xda":
            return at
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return at


def wrong_checksum(data: bytes) -> str | None:
    """Return the type of the first chunk of a PNG that pixels depend on and whose CRC-32 is wrong, or None.

    Pillow does not compare the checksums of pixels.
    """
    view, at = memoryview(data), 8
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(view[at : at + 4], "big")
        kind = bytes(view[at + 4 : at + 8])
        if end + 4 > len(data) or kind == b"IEND":
            break
        if kind in (b"IHDR", b"PLTE", b"tRNS", b"IDAT") and zlib.crc32(view[at + 4 : end]) != int.from_bytes(
            view[end : end + 4], "big"
        ):
            return kind.decode("ascii")
        at = end + 4
    return None


CONVERT = "not read; convert it to PNG or JPEG"  # for formats that other programs read
_EXTRA = dict.fromkeys(("HEIC", "JPEG XL"), "; or `pip install -e '.[formats]'`")
_DETAIL = 200  # characters of a decoder's message that are stored


def open_image(data: bytes, max_pixels: int) -> Image.Image:
    """Return an image with all pixels loaded; its attribute `format` is a key of FORMATS.

    For an animation or a file with several pages, this is the first image. Bytes after the image are ignored. The
    threads of a process decode one after another, because Pillow's settings hold for the whole process.

    Images with more than `max_pixels` are refused before memory is allocated. It replaces Pillow's own limit,
    `Image.MAX_IMAGE_PIXELS`, during the call.

    Raises:
        DamageError: empty, not an image, truncated, corrupt, without pixels, or with too many.
    """
    if not data:
        raise DamageError(Reason.EMPTY)
    name = next((name for name, format in FORMATS.items() if format.signature.match(data)), None)
    if name is None:
        other = next((name for name, signature in _OTHERS.items() if signature.match(data)), None)
        detail = f"{other}: {CONVERT}{_EXTRA.get(other, '')}" if other else f"begins with {data[:12]!r}"
        raise DamageError(Reason.NOT_AN_IMAGE, detail)
    if name == "PNG" and (chunk := wrong_checksum(data)) is not None:
        raise DamageError(Reason.CORRUPT, f"PNG: wrong checksum of {chunk}")
    with _strict(max_pixels):
        image = _opened(name, _File(data))
        if image.width * image.height > max_pixels:
            raise DamageError(Reason.BOMB, f"{image.width} x {image.height} pixels")
        if ends_early(name, data):
            raise DamageError(Reason.TRUNCATED, f"{name}: its end is missing")
        try:
            image.load()
        except Exception as error:  # any error of a decoder means that the file is damaged
            raise _damage(name, error, False) from error
        with suppress(Exception):
            image.getexif()  # read now, as it warns of damage
    if name == "PNG":
        _scale_key(image, data[24])
    return image


class _File(BytesIO):
    """A file that records reads beyond its end."""

    short = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes."""
        data = super().read(size)
        self.short |= size is not None and len(data) < size
        return data


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
        before = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
        Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = (max_pixels + 1) // 2, False  # it allows twice that
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = before
