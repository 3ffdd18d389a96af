from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from darkroom.data.images import decode, encode, to_pil
from darkroom.errors import DarkroomError


@given(
    arrays(np.uint8, st.tuples(st.sampled_from([1, 3, 4]), st.integers(1, 9), st.integers(1, 9))),
    st.sampled_from(["png", "webp"]),
)
def test_encoding_loses_nothing(image: np.ndarray, format: str) -> None:
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[len(image)]
    assert (decode(encode(to_pil(image), format), mode) == image).all()


def test_colours_under_transparent_pixels_are_kept() -> None:
    image = np.random.default_rng(0).integers(0, 256, (4, 16, 16), dtype=np.uint8)
    image[3] = 0
    for format in ("png", "webp"):
        assert (decode(encode(to_pil(image), format), "RGBA") == image).all()


def test_equal_pixels_give_equal_bytes_whatever_the_file_said() -> None:
    plain = Image.new("RGB", (4, 4), (1, 2, 3))
    profiled = plain.copy()
    profiled.info = {"icc_profile": b"a profile", "exif": b"Exif\0\0", "dpi": (72, 72)}
    for format in ("png", "webp", "jpeg"):
        assert encode(plain, format) == encode(profiled, format)


@pytest.mark.parametrize("format", ["png", "webp", "jpeg"])
def test_only_pixels_are_stored(format: str) -> None:
    image = to_pil(np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x010E] = "seen"
    image.info |= {"exif": exif.tobytes(), "icc_profile": b"seen", "xmp": b"seen", "comment": b"seen", "dpi": (72, 72)}
    stored = encode(image, format)
    assert b"seen" not in stored
    with Image.open(BytesIO(stored)) as read:
        # JFIF's header stands in every JPEG, and WebP's says how an animation ends.
        always = {"jfif", "jfif_version", "jfif_unit", "jfif_density", "loop", "background", "timestamp", "duration"}
        assert set(read.info) <= always
    assert image.info["xmp"] == b"seen"


def test_what_was_written_before_does_not_matter() -> None:
    image = to_pil(np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8))
    first = encode(image, "png")
    image.save(BytesIO(), "JPEG", quality=3)  # Pillow leaves settings in it
    assert encode(image, "png") == first


def test_jpeg_has_the_quality_asked_for_and_chroma_in_full() -> None:
    colours = np.zeros((3, 16, 16), dtype=np.uint8)
    colours[0, :, ::2] = 255  # red and black columns of one pixel
    sizes = [len(encode(to_pil(colours), "jpeg", quality)) for quality in (1, 50, 95, 100)]
    assert sizes == sorted(sizes)
    assert np.abs(decode(encode(to_pil(colours), "jpeg", 95), "RGB").astype(int) - colours).max() <= 12
    assert np.abs(decode(encode(to_pil(colours), "jpeg", 1), "RGB").astype(int) - colours).max() > 40


def test_what_is_stored_is_read_in_the_channels_asked_for() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (1, 5, 7), dtype=np.uint8)
    assert (decode(encode(to_pil(grey), "webp"), "L") == grey).all()  # WebP knows no grey
    assert decode(encode(to_pil(grey), "png"), "RGBA").shape == (4, 5, 7)


def test_only_images_become_images() -> None:
    with pytest.raises(DarkroomError, match="float64"):
        to_pil(np.zeros((3, 4, 4)))
