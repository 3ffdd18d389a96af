"""Image files of every kind, made here: with Pillow where it writes them, by hand where it does not."""

import struct
import zlib
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = BytesIO()
    image.copy().save(buffer, format, **options)
    return buffer.getvalue()


@cache
def pictures() -> dict[str, bytes]:
    """One 24 x 20 picture in every format, and in the ways of storing it that are read by other code."""
    first, grey = Image.fromarray(noise(20, 24)), Image.fromarray(noise(20, 24)).convert("L")
    return {
        "png": saved(first, "PNG"),
        "png, palette": saved(first.quantize(16), "PNG"),
        "png, 16 bits": saved(Image.fromarray(noise(20, 24, 2).view(np.uint16)[..., 0]), "PNG"),
        "png, animated": saved(first, "PNG", **_several()),
        "jpeg": saved(first, "JPEG"),
        "jpeg, progressive": saved(first, "JPEG", progressive=True),
        "jpeg, thumbnail": saved(first, "JPEG", exif=_exif_with_thumbnail()),
        "jpeg, CMYK": saved(first.convert("CMYK"), "JPEG"),
        "mpo": saved(first, "MPO", **_several()),
        "webp": saved(first, "WEBP"),
        "webp, lossless": saved(first, "WEBP", lossless=True),
        "webp, animated": saved(first, "WEBP", lossless=True, **_several()),
        "gif": saved(first, "GIF"),
        "gif, animated": saved(first, "GIF", **_several()),
        "bmp": saved(first, "BMP"),
        "bmp, palette": saved(first.quantize(16), "BMP"),
        "tiff": saved(first, "TIFF"),
        "tiff, lzw": saved(first, "TIFF", compression="tiff_lzw"),
        "tiff, jpeg": saved(first, "TIFF", compression="jpeg"),
        "tiff, fax": saved(first.convert("1"), "TIFF", compression="group4"),
        "tiff, pages": saved(first, "TIFF", **_several()),
        "ppm": saved(first, "PPM"),
        "pgm": saved(grey, "PPM"),
        "avif": saved(first, "AVIF"),
        "jpeg 2000": saved(first, "JPEG2000"),
    }


def _several() -> dict[str, Any]:
    """What makes a file of three pictures; anew each time, as Pillow leaves settings in images it has written."""
    return {"save_all": True, "append_images": [Image.fromarray(noise(20, 24, seed=seed)) for seed in (1, 2)]}


def _exif_with_thumbnail() -> bytes:
    """EXIF whose bytes hold a whole small JPEG, with an end of its own."""
    exif = Image.Exif()
    exif[0x927C] = saved(Image.fromarray(noise(4, 4)), "JPEG")
    return exif.tobytes()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *extra: bytes, level: int = 6) -> bytes:
    """A PNG by hand; colour: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA; rows: each after its filter byte."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", header), *extra, chunk(b"IDAT", zlib.compress(rows, level)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def sized(data: bytes, kind: str, width: int, height: int) -> bytes:
    """A file of `pictures` whose header says another size; all else is as it was."""
    changed = bytearray(data)
    match kind:
        case "png":
            changed[16:24] = struct.pack(">II", width, height)
            changed[29:33] = struct.pack(">I", zlib.crc32(changed[12:29]))
        case "jpeg":
            at = data.index(b"\xff\xc0")
            changed[at + 5 : at + 9] = struct.pack(">HH", height, width)
        case "gif":
            changed[6:10] = struct.pack("<HH", width, height)
            at = data.index(b"," + bytes(4))  # the frame
            changed[at + 5 : at + 9] = struct.pack("<HH", width, height)
        case "bmp":
            changed[18:26] = struct.pack("<ii", width, height)
        case "ppm":
            return b"P6 %d %d 255 " % (width, height) + data[-1440:]
        case "tiff":
            for tag, value in ((256, width), (257, height)):
                at = data.index(struct.pack("<H", tag))
                changed[at + 2 : at + 12] = struct.pack("<HII", 4, 1, value)
        case "webp, lossless":
            at = data.index(b"VP8L") + 9
            bits = int.from_bytes(data[at : at + 4], "little") & ~(2**28 - 1) | (width - 1) | (height - 1) << 14
            changed[at : at + 4] = bits.to_bytes(4, "little")
        case "jpeg 2000":
            for at in (data.index(b"ihdr") + 4, data.index(b"\xff\x4f\xff\x51") + 8):
                order = (height, width) if at < data.index(b"\xff\x4f\xff\x51") else (width, height)
                changed[at : at + 8] = struct.pack(">II", *order)
    return bytes(changed)


# CIE XYZ of the primaries under D50, as profiles hold them: columns red, green, blue.
SRGB = np.array([[0.4360, 0.3851, 0.1431], [0.2225, 0.7169, 0.0606], [0.0139, 0.0971, 0.7141]])
P3 = np.array([[0.5151, 0.2920, 0.1571], [0.2412, 0.6922, 0.0666], [-0.0011, 0.0419, 0.7841]])


def rgb_profile(primaries: NDArray[np.float64], gamma: float) -> bytes:
    """An ICC profile of an RGB space by hand: three primaries and one exponent."""
    tags = {name: _xyz(column) for name, column in zip((b"rXYZ", b"gXYZ", b"bXYZ"), primaries.T, strict=True)}
    return _profile(b"RGB ", b"XYZ ", tags | {name: _curve(gamma) for name in (b"rTRC", b"gTRC", b"bTRC")})


def grey_profile(gamma: float) -> bytes:
    return _profile(b"GRAY", b"XYZ ", {b"kTRC": _curve(gamma)})


def cmyk_profile(lightness: int) -> bytes:
    """A profile: paper is white, the four inks together are black, and any of them in full gives one grey.

    lightness: of that grey, 0 to 255 for L* 0 to 100.
    """
    steps = bytes(range(256))
    known = {0: 255, 4: 0}  # by the number of inks
    nodes = b"".join(bytes([known.get(sum(inks), lightness), 128, 128]) for inks in np.ndindex(2, 2, 2, 2))
    identity = struct.pack(">9i", *(65536 * (row == column) for row in range(3) for column in range(3)))
    table = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + identity + steps * 4 + nodes + steps * 3
    return _profile(b"CMYK", b"Lab ", {b"A2B0": table}, kind=b"prtr")


def _xyz(values: NDArray[np.float64]) -> bytes:
    return b"XYZ " + bytes(4) + struct.pack(">3i", *(round(float(value) * 65536) for value in values))


def _curve(gamma: float) -> bytes:
    return b"curv" + bytes(4) + struct.pack(">IH", 1, round(gamma * 256)) + bytes(2)


def _profile(space: bytes, connection: bytes, tags: dict[bytes, bytes], kind: bytes = b"mntr") -> bytes:
    tags = {b"wtpt": _xyz(np.array([0.9642, 1.0, 0.8249])), **tags}
    directory, body, start = b"", b"", 132 + 12 * len(tags)
    for name, tag in tags.items():
        padded = tag + bytes(-len(tag) % 4)
        directory += name + struct.pack(">II", start + len(body), len(tag))
        body += padded
    illuminant = struct.pack(">3i", *(round(value * 65536) for value in (0.9642, 1.0, 0.8249)))
    rest = b"\x02\x10\0\0" + kind + space + connection + bytes(12) + b"acsp" + bytes(28) + illuminant + bytes(48)
    content = struct.pack(">I", len(tags)) + directory + body
    return struct.pack(">I", 128 + len(content)) + bytes(4) + rest + content


def srgb(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """Linear light 0 to 1 as sRGB levels 0 to 255 (IEC 61966-2-1)."""
    light = np.clip(linear, 0, 1)
    return 255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
