"""Prepare images for storage by the rules of docs/reference/formats.md: upright, square, 8 bits a channel, in sRGB."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageCms, features

from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.images import ImageSpec
from darkroom.rng import generator

_SPACE = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}  # the colour space of a profile, by pixel mode
_NEARLY = 2  # of 255: a profile that changes colours by no more than this counts as sRGB
_DEEP = 65535


def eight_bits(image: Image.Image) -> Image.Image:
    """Return an image, possibly the same object, in a mode whose pixels can be averaged: L, LA, RGB, RGBA, CMYK or LAB.

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

    Its colours are not multiplied by alpha, and are 0 where it is 0; without alpha in `channels`, transparent pixels
    become white. An ICC `profile` that is broken, or of another colour space, is ignored.
    """
    alpha = image.getchannel("A") if image.mode in ("LA", "RGBA") else None
    colours = _managed(image if alpha is None else image.convert(image.mode[:-1]), profile)
    if alpha is None:
        return colours.convert(channels)
    if channels == "RGBA":
        seen = alpha.point(lambda level: 255 if level else 0)
        colours = Image.composite(colours.convert("RGB"), Image.new("RGB", colours.size), seen)
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


FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "area": Image.Resampling.BOX,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
# The transposition that makes an image upright, by its EXIF orientation.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_LONG = 8  # maximum ratio of the sides: a longer image is cut first, since enlarging it would fill the memory


@dataclass(frozen=True)
class Preparation:
    """The preparation of images: the entry `preparation` of a part's manifest, with `spec` under `image`.

    crop: center, adm or random, see `square`.
    resample: a key of FILTERS.
    seed: the seed of random crops.
    max_pixels, min_size: the maximum number of pixels, and the minimum of the shorter side in pixels.
    quality: the quality of JPEG, 1 to 100.
    fit: crop, pad or stretch, see `square`.
    pad_colour: border, transparent, or a colour that Pillow reads.
    """

    spec: ImageSpec
    crop: str
    resample: str
    seed: int
    max_pixels: int
    min_size: int
    quality: int
    fit: str = "crop"
    pad_colour: str = "border"

    def metadata(self) -> dict[str, Any]:
        """Return the entry `preparation` of a manifest, without keys at a default: older manifests lack them."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if name != "spec" and value != default}

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "Preparation":
        """Return the preparation from a manifest."""
        return cls(spec=ImageSpec.of(manifest), **manifest["preparation"])


def prepare(image: Image.Image, preparation: Preparation, key: str) -> Image.Image:
    """Return the image to store: upright, a square of spec.size pixels, 8 bits a channel, in sRGB.

    Transparent pixels become white where `spec.channels` has no alpha. Metadata are removed. The rules are in
    docs/reference/formats.md.

    `key` is that of the image: a random crop is a function of it and `preparation.seed`.

    Raises:
        DamageError: the image is too small, or its pixels cannot be converted to 8 bits a channel.
    """
    if min(image.size) < preparation.min_size:
        reason = Reason.TOO_SMALL if min(image.size) else Reason.ZERO_SIZE
        raise DamageError(reason, f"{image.width} x {image.height} pixels")
    profile = image.info.get("icc_profile")
    squared = square(upright(eight_bits(image), orientation(image)), preparation, key)
    stored = as_channels(squared, profile if isinstance(profile, bytes) else None, preparation.spec.channels)
    if preparation.fit == "pad":
        stored = _padded(stored, preparation)
    stored.info = {}
    return stored


def blank(image: Image.Image, stored: Image.Image) -> Finding | None:
    """Return the finding for an image that is blank as `stored`; None: it is not blank."""
    channels = [stored.getchannel(band).getextrema() for band in stored.getbands()]
    hidden = stored.mode == "RGBA" and channels[3] == (0, 0)
    if not hidden and any(least != most for least, most in channels):
        return None
    alpha = alpha_range(image)
    detail = f"{image.width} x {image.height} pixels"
    if hidden or alpha == (0, 0):
        return Finding(Reason.TRANSPARENT, detail)
    if image.size == (1, 1):
        return Finding(Reason.ONE_PIXEL)
    colour = ", ".join(str(least) for least, _ in channels)
    note = "; what is transparent becomes white" if alpha[0] == 0 and stored.mode != "RGBA" else ""
    return Finding(Reason.ONE_COLOUR, f"{detail}, as stored {colour}{note}")


def alpha_range(image: Image.Image) -> tuple[int, int]:
    """Return the smallest and the largest alpha of an image, 0 to 255; an image without alpha is opaque."""
    if not image.has_transparency_data and image.mode not in ("LA", "La", "PA", "RGBA", "RGBa"):
        return 255, 255
    least, most = eight_bits(image).convert("RGBA").getchannel("A").getextrema()
    return int(least), int(most)  # type: ignore[arg-type]


def orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an image, 1 to 8; 1, upright, where there is none or it cannot be read."""
    try:
        value = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # damaged metadata do not matter: the pixels can be read
        return 1
    return value if value in _TURNS else 1


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """Return an image rotated and mirrored by its EXIF orientation; the same object where it is upright."""
    return image.transpose(_TURNS[orientation]) if orientation in _TURNS else image


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of the upright image, in pixels."""
    return (image.height, image.width) if orientation(image) >= 5 else image.size


def square(image: Image.Image, preparation: Preparation, key: str) -> Image.Image:
    """Return a new image of spec.size pixels, from one in a mode that `eight_bits` returns; `pad` adds margins later.

    stretch: the whole image, both sides resized. pad: the whole image, at most spec.size pixels high and wide; with
    `nearest` a smaller one is enlarged by a whole factor. crop: a square of it, as `preparation.crop` says.

    center: the largest square in the middle, resized in one step. random: the largest square at a position that is a
    function of `preparation.seed` and the key, resized in one step. adm: as `center_crop_arr` of ADM and DiT (Dhariwal
    and Nichol, "Diffusion models beat GANs on image synthesis", 2021): halved with a box filter while the shorter side
    is at least twice the target, resized to the target, and cropped in the middle.

    Filters are antialiased, and colours are weighted by alpha, so that transparent pixels add no colour.
    """
    size, filter = preparation.spec.size, FILTERS[preparation.resample]
    if preparation.fit != "crop":
        scale = size / max(image.size)
        scale = int(scale) if preparation.resample == "nearest" and scale >= 1 else scale
        width, height = (max(1, round(length * scale)) for length in image.size)
        return image.resize((size, size) if preparation.fit == "stretch" else (width, height), filter)
    if preparation.crop == "adm":
        return _adm(image, size, filter)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    if preparation.crop == "random":
        draw = generator(preparation.seed, f"crop/{key}")
        left, top = (int(draw.integers(0, length - side + 1)) for length in image.size)
    box = (left, top, left + side, top + side)
    return image.crop(box) if side == size else image.resize((size, size), filter, box=box)


def _adm(image: Image.Image, size: int, filter: Image.Resampling) -> Image.Image:
    longest = _LONG * min(image.size)
    if max(image.size) > longest:
        image = _middle(image, min(image.width, longest), min(image.height, longest))
    while min(image.size) >= 2 * size:
        image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
    scale = size / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), filter)
    return _middle(image, size, size)


def _middle(image: Image.Image, width: int, height: int) -> Image.Image:
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _padded(image: Image.Image, preparation: Preparation) -> Image.Image:
    """Return an image of mode L, RGB or RGBA in the middle of a square of spec.size pixels."""
    size, colour = preparation.spec.size, preparation.pad_colour
    fill = _border(image, preparation.resample == "nearest") if colour == "border" else colour
    canvas = Image.new(image.mode, (size, size), (0, 0, 0, 0) if colour == "transparent" else fill)
    canvas.paste(image, ((size - image.width) // 2, (size - image.height) // 2))
    return canvas


def _border(image: Image.Image, exact: bool) -> tuple[int, ...]:
    """Return the mean colour of the outermost pixels, weighted by alpha, with mean alpha; exact: the most frequent."""
    pixels = np.atleast_3d(np.asarray(image))
    inner = np.zeros(pixels.shape[:2], bool)
    inner[1:-1, 1:-1] = True
    border = pixels[~inner].astype(np.float64)  # (pixels, channels)
    if exact:
        colours, counts = np.unique(border, axis=0, return_counts=True)
        return tuple(colours[counts.argmax()].astype(int).tolist())
    alpha = border[:, 3:]  # (pixels, 1); (pixels, 0) without alpha
    weights = alpha if alpha.size else np.ones((len(border), 1))
    mean = (border[:, :3] * weights).sum(axis=0) / max(1.0, weights.sum())
    return tuple(int(value + 0.5) for value in (*mean, *alpha.mean(axis=0)))
