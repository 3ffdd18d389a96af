"""A terminal shows two pixels a character: what is drawn is the picture, in as many colours as it has."""

import io

import numpy as np
import pytest
from PIL import Image
from rich.color import ColorSystem

from darkroom.tools.bands import colours_of, half_blocks
from tools.half_blocks_read import pixels_of

TRUE = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


def image(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize(("height", "width"), [(8, 6), (7, 9), (1, 1)])
def test_a_picture_that_fits_is_drawn_pixel_by_pixel(height: int, width: int) -> None:
    picture = image(height, width)
    found = pixels_of(half_blocks(picture, 100))
    np.testing.assert_array_equal(found[:height], np.asarray(picture))
    assert found.shape == (height + height % 2, width, 3) and (found[height:] == -1).all()  # never enlarged


def test_a_wide_picture_is_shrunk_by_area() -> None:
    squares = np.asarray(image(4, 5)).repeat(8, axis=0).repeat(8, axis=1)
    np.testing.assert_array_equal(pixels_of(half_blocks(Image.fromarray(squares), 5)), squares[::8, ::8])


def test_grey_pictures_are_drawn_too() -> None:
    grey = Image.fromarray(np.array([[0, 200], [90, 255]], dtype=np.uint8))
    assert pixels_of(half_blocks(grey, 9))[:, :, 0].tolist() == [[0, 200], [90, 255]]


def test_of_256_colours_the_nearest_is_taken() -> None:
    colours = np.array([[[0, 96, 255], [120, 10, 180]], [[60, 216, 40], [255, 0, 0]]], dtype=np.uint8)
    found = pixels_of(half_blocks(Image.fromarray(colours), 9, ColorSystem.EIGHT_BIT))
    assert found.tolist() == [[[0, 95, 255], [135, 0, 175]], [[95, 215, 0], [255, 0, 0]]]


def test_every_line_ends_in_the_colours_of_the_terminal() -> None:
    assert all(line.endswith("\x1b[0m") for line in half_blocks(image(6, 4), 9).split("\n"))


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return self.writable()  # of a closed one it raises, as every terminal's


@pytest.mark.parametrize(
    ("environment", "encoding", "colours"),
    [
        (TRUE, "utf-8", ColorSystem.TRUECOLOR),
        ({"TERM": "screen-256color"}, "utf-8", ColorSystem.EIGHT_BIT),
        ({"TERM": "vt100"}, "utf-8", None),
        ({}, "utf-8", None),
        (TRUE | {"NO_COLOR": "1"}, "utf-8", None),
        (TRUE | {"TERM": "dumb"}, "utf-8", None),
        (TRUE, "latin-1", None),
    ],
)
def test_colours_follow_from_the_terminal(
    environment: dict[str, str], encoding: str, colours: ColorSystem | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colours_of(Terminal(io.BytesIO(), encoding)) == colours


def test_a_file_or_a_closed_stream_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert colours_of(io.StringIO()) is None
    stream = Terminal(io.BytesIO(), "utf-8")
    stream.close()
    assert colours_of(stream) is None
