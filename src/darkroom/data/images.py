"""Encode and decode stored images, as Pillow images and as arrays."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.errors import DarkroomError

MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # by the number of channels
EXTENSION = {"png": "png", "webp": "webp", "jpeg": "jpg"}  # file name extension of the member in the tar
# exact: colours under transparent pixels are kept; without it WebP is not lossless. `quality` and `method` set the
# effort of the encoder: with these, photographs of 256 pixels take about as long as PNG; method 4 takes eight times as
# long for 5% fewer bytes.
_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG", "compress_level": 4},
    "webp": {"format": "WEBP", "lossless": True, "exact": True, "quality": 20, "method": 2},
    "jpeg": {"format": "JPEG"},
}


@dataclass(frozen=True)
class ImageSpec:
    """The common properties of all images of an artifact: the entry `image` of its manifest.

    size: height and width in pixels.
    channels: L, RGB or RGBA, 8 bits each.
    format: png or webp (both lossless) or jpeg; `original` where images stay in the files of their owner and are
        prepared on reading; `mixed` where the parts differ.
    """

    size: int
    channels: str
    format: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of a decoded image."""
        depth = {mode: count for count, mode in MODES.items()}
        return (depth[self.channels], self.size, self.size)

    def metadata(self) -> dict[str, Any]:
        """Return the entry `image` of a manifest."""
        return asdict(self)

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "ImageSpec":
        """Return the specification from the entry `image` of a manifest."""
        return cls(**manifest["image"])


def encode(image: Image.Image, format: str, quality: int = 95) -> bytes:
    """Return an image as PNG, lossless WebP, or JPEG of a quality, 1 to 100, with chroma in full resolution.

    Only the pixels are stored, so equal pixels give equal bytes.
    """
    bare = image.copy()
    bare.info = {}
    options: dict[str, Any] = {"quality": quality, "subsampling": 0} if format == "jpeg" else {}
    buffer = BytesIO()
    bare.save(buffer, **_OPTIONS[format], **options)
    return buffer.getvalue()


def decode(data: bytes, channels: str) -> NDArray[np.uint8]:
    """Return an encoded image as uint8 (C, H, W); C is 1, 3 or 4 for the `channels` L, RGB or RGBA."""
    with Image.open(BytesIO(data), formats=["PNG", "WEBP", "JPEG"]) as image:
        return to_array(image.convert(channels))


def to_array(image: Image.Image) -> NDArray[np.uint8]:
    """Return a Pillow image as uint8 (C, H, W)."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def to_pil(array: NDArray[np.uint8]) -> Image.Image:
    """Return uint8 (C, H, W) with 1, 3 or 4 channels as a Pillow image of mode L, RGB or RGBA."""
    if array.dtype != np.uint8 or array.ndim != 3 or len(array) not in MODES:
        raise DarkroomError(f"an image must be uint8 (1, 3 or 4, H, W), not {array.dtype} {array.shape}.")
    return Image.fromarray(array[0] if len(array) == 1 else np.ascontiguousarray(array.transpose(1, 2, 0)))
