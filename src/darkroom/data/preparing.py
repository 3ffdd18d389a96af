"""Makes of any image one as it is stored: upright, a square, 8 bits a channel."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from PIL import Image, ImageOps

from darkroom.data.damage import DamageError, Reason
from darkroom.data.images import ImageSpec

FILTERS = {
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_WHITE = (255, 255, 255, 255)


@dataclass(frozen=True)
class Preparation:
    """How images are prepared; stands in the manifest of a part under `preparation`, and `spec` under `image`.

    crop: center, adm or random; resample: a key of FILTERS; seed: of random crops; max_pixels, min_size: limits of what
    is accepted; quality: of JPEG.
    """

    spec: ImageSpec
    crop: str
    resample: str
    seed: int
    max_pixels: int
    min_size: int
    quality: int

    def facts(self) -> dict[str, Any]:
        """Return what a manifest holds under `preparation`."""
        facts = asdict(self)
        del facts["spec"]
        return facts

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "Preparation":
        """Return what a manifest says."""
        return cls(spec=ImageSpec.of(manifest), **manifest["preparation"])


def prepare(image: Image.Image, how: Preparation, key: str) -> Image.Image:
    """Return an image as it is stored: upright, cropped to a square of spec.size pixels, 8 bits a channel.

    Transparent images become opaque on white where `spec.channels` has no alpha.

    Args:
        image: with its pixels read, any size and mode.
        how: size, channels, crop, filter.
        key: of the image; a random crop follows from it and `how.seed`.

    Raises:
        DamageError: too small, or pixels that no rule turns into 8 bits a channel.
    """
    if min(image.size) < how.min_size:
        raise DamageError(Reason.TOO_SMALL, f"{image.width} x {image.height} pixels")
    if image.mode.startswith(("I", "F")):
        raise DamageError(Reason.UNSUPPORTED, f"pixels of mode {image.mode}")
    upright = ImageOps.exif_transpose(image)
    if upright.has_transparency_data and how.spec.channels != "RGBA":
        upright = Image.alpha_composite(Image.new("RGBA", upright.size, _WHITE), upright.convert("RGBA"))
    converted = upright.convert(how.spec.channels)
    side = min(converted.size)
    left, top = (converted.width - side) // 2, (converted.height - side) // 2
    box = (left, top, left + side, top + side)
    return converted.resize((how.spec.size, how.spec.size), FILTERS[how.resample], box=box)
