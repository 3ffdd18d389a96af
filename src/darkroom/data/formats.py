"""The supported formats of image files, and checks of a file that need no decoding.

Each format begins with a signature. Formats without a signature (TGA), drawings (SVG, PDF), and formats that need
another program (EPS: Ghostscript) are not supported.
"""

import re
import zlib
from dataclasses import dataclass

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)


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
    # The second header's length is one of those that exist: a text may well begin with BM.
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


# Formats of pictures that are recognised, and not read.
_OTHERS = {
    "HEIC": re.compile(rb"....ftyp(he[iv][cxmsf]|m[is]f1)", re.DOTALL),
    "JPEG XL": re.compile(rb"\xff\x0a|\0\0\0\x0cJXL \r\n"),
    "PSD": re.compile(rb"8BPS"),
    "PDF": re.compile(rb"%PDF-"),
    "PostScript": re.compile(rb"%!PS|\xc5\xd0\xd3\xc6"),
    "SVG": re.compile(
        rb"(\xef\xbb\xbf)?\s*(<\?xml.{0,300}?)?(<!--.{0,300}?-->\s*)?(<!DOCTYPE svg.{0,300}?)?<svg", re.DOTALL
    ),
}


def format_of(data: bytes) -> str | None:
    """Return the key of FORMATS whose signature a file's content begins with, or None."""
    return next((name for name, format in FORMATS.items() if format.signature.match(data)), None)


def other_format(data: bytes) -> str | None:
    """Return the name of a format of pictures that is not read, or None."""
    return next((name for name, signature in _OTHERS.items() if signature.match(data)), None)


def ends_early(name: str, data: bytes) -> bool:
    """Return whether the end marker of a file is missing, in formats whose decoders do not always notice it.

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
        if marker == b"\xff":  # filling
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
