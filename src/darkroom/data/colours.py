"""Converts pixel modes and colour profiles to 8 bits of L, RGB or RGBA in sRGB: the rules of docs/images.md."""

from functools import lru_cache
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, features

from darkroom.data.damage import DamageError, Reason

_SPACE = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}  # the colour space of a profile, by pixel mode
_NEARLY = 2  # of 255: a profile that changes colours by no more than this counts as sRGB
_DEEP = 65535


def eight_bits(image: Image.Image) -> Image.Image:
    """Return an image, or the same one, in a mode whose pixels can be averaged: L, LA, RGB, RGBA, CMYK or LAB.

    Raises:
        DamageError: the pixel values cannot be converted to 8 bits.
    """
    match image.mode:
        case "LA" | "RGBA" | "CMYK" | "LAB":
            return image
        case "I;16" | "I;16B" | "I;16L" | "I;16N" | "I":
            return _from_16_bits(image)
        case "F":
            return _from_float(np.asarray(image))
        case "La":
            return image.convert("LA")
        case "PA" | "RGBa":
            return image.convert("RGBA")
        case "1" | "L" | "P" | "RGB" if image.has_transparency_data:
            return image.convert("RGBA")
        case "L" | "RGB":
            return image
        case "1":
            return image.convert("L")
        case "P" | "RGBX" | "YCbCr" | "HSV":
            return image.convert("RGB")
    raise DamageError(Reason.UNSUPPORTED, f"pixels of mode {image.mode}")


def _from_16_bits(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    if values.min() < 0 or values.max() > _DEEP:
        raise DamageError(Reason.UNSUPPORTED, f"whole numbers from {values.min()} to {values.max()}, not 0 to {_DEEP}")
    grey = Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))  # 65535 = 255 * 257
    if isinstance(key := image.info.get("transparency"), int):
        grey.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return grey


def _from_float(values: NDArray[np.float32]) -> Image.Image:
    if not (values.min() >= 0 and values.max() <= 1):  # so that NaN is refused
        raise DamageError(Reason.UNSUPPORTED, "floating-point numbers that are not all from 0 to 1")
    return Image.fromarray(np.floor(values.astype(np.float64) * 255 + 0.5).astype(np.uint8))


def as_channels(image: Image.Image, profile: bytes | None, channels: str) -> Image.Image:
    """Return an image that `eight_bits` returned, in sRGB and of mode L, RGB or RGBA.

    Args:
        image: the image, with colours that are not multiplied by alpha.
        profile: the ICC profile of the image; one that is broken, or of another colour space, is ignored.
        channels: L, RGB or RGBA; without alpha, transparent pixels become white.
    """
    alpha = image.getchannel("A") if image.mode in ("LA", "RGBA") else None
    colours = _managed(image if alpha is None else image.convert(image.mode[:-1]), profile)
    if alpha is None:
        return colours.convert(channels)
    if channels == "RGBA":
        colours = colours.convert("RGB")
        colours.putalpha(alpha)
        return colours
    return Image.composite(colours, Image.new(colours.mode, colours.size, "white"), alpha).convert(channels)


def _managed(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Return an image of mode L, RGB, CMYK or LAB as L or RGB in sRGB."""
    if image.mode == "LAB":
        if (transform := _from_lab()) is None:
            raise DamageError(Reason.UNSUPPORTED, "Lab, and this Pillow is without littlecms")
        return transform.apply(image)
    if profile and (transform := _to_srgb(profile, image.mode)) is not None:
        return transform.apply(image)
    return image.convert("RGB") if image.mode == "CMYK" else image


@lru_cache(maxsize=16)
def _to_srgb(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform from a profile to sRGB; None where no conversion is needed, or none is possible."""
    if not features.check("littlecms2"):
        return None
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        if source.profile.xcolor_space.strip() != _SPACE[mode]:
            return None
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None
    if mode == "CMYK":
        return transform
    levels = np.linspace(0, 255, 16).round().astype(np.uint8)
    probe = Image.fromarray(
        levels[None] if mode == "L" else np.stack(np.meshgrid(levels, levels, levels), -1).reshape(16, -1, 3)
    )
    change = np.asarray(transform.apply(probe)).astype(int) - np.asarray(probe.convert("RGB"))
    return transform if np.abs(change).max() > _NEARLY else None


@lru_cache(maxsize=1)
def _from_lab() -> ImageCms.ImageCmsTransform | None:
    if not features.check("littlecms2"):
        return None
    return ImageCms.buildTransform(ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB")
