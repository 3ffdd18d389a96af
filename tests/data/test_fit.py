"""How images become squares: padded nothing is cut, nearest makes no colours, stretched everything is there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from darkroom.data.images import ImageSpec
from darkroom.data.preparing import FILTERS, Preparation, prepare
from darkroom.params.ingest import Ingest
from data.making import preparation

SIZE = 24
SPLITS = {"train": 0.8, "val": 0.1, "test": 0.1}
sides = st.integers(1, 60)


def noise(width: int, height: int, channels: str = "RGB", levels: int = 256) -> Image.Image:
    """Return an image of random pixels; at any width and height the same."""
    numbers = np.random.default_rng((width, height)).integers(0, levels, (height, width, len(channels)))
    return Image.fromarray((numbers * 255 // (levels - 1)).astype(np.uint8), channels)


def stored(image: Image.Image, channels: str = "RGB", **changes: str) -> NDArray[np.uint8]:
    return np.asarray(prepare(image, preparation(ImageSpec(SIZE, channels, "png"), **changes), "key"))


def colours(pixels: NDArray[np.uint8] | Image.Image) -> set[tuple[int, ...]]:
    """Return the colours that are visible."""
    flat = np.asarray(pixels).reshape(-1, np.asarray(pixels).shape[-1]).tolist()
    return {tuple(colour) for colour in flat if len(colour) < 4 or colour[3]}


@given(width=st.integers(1, SIZE), height=st.integers(1, SIZE), colour=st.sampled_from(["border", "white", "#102030"]))
def test_padded_every_pixel_is_there_enlarged_by_a_whole_factor(width: int, height: int, colour: str) -> None:
    image, times = noise(width, height), SIZE // max(width, height)
    found = stored(image, fit="pad", resample="nearest", pad_colour=colour)
    left, top = (SIZE - width * times) // 2, (SIZE - height * times) // 2
    inside = np.zeros((SIZE, SIZE), bool)
    inside[top : top + height * times, left : left + width * times] = True
    expected = np.asarray(image).repeat(times, axis=0).repeat(times, axis=1)
    assert (found[inside].reshape(expected.shape) == expected).all()
    assert len(colours(found[~inside])) <= 1  # the margin


@given(
    width=sides,
    height=sides,
    fit=st.sampled_from(["crop", "pad", "stretch"]),
    channels=st.sampled_from(["RGB", "RGBA"]),
)
def test_nearest_keeps_the_palette(width: int, height: int, fit: str, channels: str) -> None:
    image = noise(width, height, channels, levels=4)
    assert colours(stored(image, channels, fit=fit, resample="nearest")) <= colours(image)


@given(width=sides, height=sides, fit=st.sampled_from(["pad", "stretch"]), resample=st.sampled_from([*FILTERS][1:]))
def test_every_corner_is_where_it_was(width: int, height: int, fit: str, resample: str) -> None:
    quarters = Image.new("RGB", (2, 2))
    quarters.putdata([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)])
    image = quarters.resize((16 * width, 16 * height), Image.Resampling.NEAREST)
    found = stored(image, fit=fit, resample=resample)
    if fit == "pad":
        wide, high = (max(1, round(side * SIZE / max(width, height))) for side in (width, height))
        left, top = (SIZE - wide) // 2, (SIZE - high) // 2
        found = found[top : top + high, left : left + wide]
    if min(found.shape[:2]) >= 8:
        assert (found[[0, 0, -1, -1], [0, -1, 0, -1]] == np.asarray(quarters).reshape(4, 3)).all()


def test_the_colour_of_the_margin() -> None:
    image = Image.new("RGBA", (12, 6), (200, 100, 0, 255))
    image.putpixel((0, 0), (0, 0, 0, 0))  # enlarged, 3 of 68 pixels of the border
    image.putpixel((3, 3), (0, 0, 255, 255))  # inside
    margins = {
        ("RGBA", "border", "box"): (200, 100, 0, 244),  # the mean alpha, and the colour of what is visible
        ("RGB", "border", "box"): (202, 107, 11),  # three are white
        ("RGBA", "border", "nearest"): (200, 100, 0, 255),
        ("RGBA", "transparent", "box"): (0, 0, 0, 0),
        ("RGBA", "#0a0b0c", "box"): (10, 11, 12, 255),
        ("RGB", "white", "box"): (255, 255, 255),
    }
    for (channels, colour, resample), expected in margins.items():
        found = stored(image.resize((SIZE, SIZE // 2), 0), channels, fit="pad", pad_colour=colour, resample=resample)
        assert tuple(found[0, 0]) == expected, (channels, colour, resample)
    assert stored(noise(8, 4).convert("L"), "L", fit="pad", pad_colour="black")[0, 0] == 0


def test_manifests_without_the_keys_still_open() -> None:
    """And parts that crop have the manifest that they had."""
    old = preparation()
    assert "fit" not in old.metadata() and "pad_colour" not in old.metadata()
    for each in (old, preparation(fit="stretch"), preparation(fit="pad", pad_colour="white")):
        manifest = {"image": each.spec.metadata(), "preparation": each.metadata()}
        assert Preparation.of(manifest) == each


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"fit": "pad", "pad_colour": "transparent"},
            "pad_colour transparent needs an alpha channel, but channels is RGB",
        ),
        (
            {"fit": "pad", "channels": "RGBA", "format": "jpeg", "pad_colour": "transparent"},
            "JPEG has no alpha channel",
        ),
        ({"fit": "stretch", "pad_colour": "white"}, "pad_colour is only read with fit pad, but fit is stretch"),
        ({"fit": "pad", "crop": "random"}, "crop is only read with fit crop, but fit is pad"),
        ({"crop": "adm", "resample": "nearest"}, "crop adm averages pixels"),
        ({"fit": "pad", "pad_colour": "red"}, "pattern"),
    ],
)
def test_what_cannot_be_is_refused(keys: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Ingest.model_validate({"splits": SPLITS, **keys})
