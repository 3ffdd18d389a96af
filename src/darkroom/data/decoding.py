"""Opens images of people's files: what is damaged is named, never guessed."""

import warnings
from io import BytesIO

from PIL import Image, UnidentifiedImageError

from darkroom.data.damage import DamageError, Reason


def open_image(data: bytes, max_pixels: int) -> Image.Image:
    """Return an image with all its pixels read; `format` says what it was stored as.

    Args:
        data: a file's content, in any format that Pillow reads.
        max_pixels: more are not decoded.

    Raises:
        DamageError: empty, not an image, truncated, corrupt, without pixels, or with too many.
    """
    if not data:
        raise DamageError(Reason.EMPTY)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(BytesIO(data))
            if image.width * image.height > max_pixels:
                raise DamageError(Reason.BOMB, f"{image.width} x {image.height} pixels")
            image.load()
    except UnidentifiedImageError as error:
        raise DamageError(Reason.NOT_AN_IMAGE) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise DamageError(Reason.TRUNCATED if "truncated" in str(error) else Reason.CORRUPT, str(error)) from error
    return image
