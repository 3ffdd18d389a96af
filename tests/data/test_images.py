import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from darkroom.data.images import FILTERS, ImageSpec, decode, encode, prepare, to_array, to_pil
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
    for format in ("png", "webp"):
        assert encode(plain, format) == encode(profiled, format)


def test_the_central_square_is_kept() -> None:
    wide = np.zeros((3, 4, 10), dtype=np.uint8)
    wide[:, :, 3:7] = 200
    assert (to_array(prepare(to_pil(wide), ImageSpec(4, "RGB", "png"), "box")) == 200).all()


@pytest.mark.parametrize("resample", FILTERS)
def test_size_and_channels_are_those_asked_for(resample: str) -> None:
    grey = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    for channels in ("L", "RGB", "RGBA"):
        spec = ImageSpec(32, channels, "png")
        assert to_array(prepare(grey, spec, resample)).shape == spec.shape


def test_the_filters_differ() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8))
    made = {prepare(noise, ImageSpec(32, "L", "png"), name).tobytes() for name in FILTERS}
    assert len(made) == len(FILTERS)


def test_transparency_becomes_white_where_there_is_no_alpha() -> None:
    clear = Image.new("RGBA", (4, 4), (10, 20, 30, 0))
    assert (to_array(prepare(clear, ImageSpec(4, "RGB", "png"), "box")) == 255).all()
    assert (to_array(prepare(clear, ImageSpec(4, "RGBA", "png"), "box"))[3] == 0).all()


def test_a_photo_taken_sideways_is_set_upright() -> None:
    image = to_pil(np.random.default_rng(0).integers(0, 256, (3, 4, 4), dtype=np.uint8))
    image.getexif()[0x0112] = 6  # the camera was turned: rotate clockwise
    turned = to_array(prepare(image, ImageSpec(4, "RGB", "png"), "box"))
    assert (turned == np.rot90(to_array(image), k=-1, axes=(1, 2))).all()


def test_sixteen_bits_are_refused() -> None:
    deep = Image.fromarray(np.full((4, 4), 40_000, dtype=np.uint16))
    with pytest.raises(DarkroomError, match=r"I;16.*8 bits"):
        prepare(deep, ImageSpec(4, "L", "png"), "box")


def test_only_images_become_images() -> None:
    with pytest.raises(DarkroomError, match="float64"):
        to_pil(np.zeros((3, 4, 4)))
