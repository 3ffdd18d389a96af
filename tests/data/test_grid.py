from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from darkroom.data.grid import (
    blank,
    captioned_grid,
    contact_sheet,
    evenly_spaced,
    image_grid,
    opaque,
    save_png,
    shown_scale,
)
from darkroom.errors import DarkroomError


@given(
    st.integers(1, 9),
    st.sampled_from([1, 3, 4]),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 3),
)
def test_every_image_stands_in_its_place(
    count: int, channels: int, height: int, width: int, columns: int, padding: int, scale: int
) -> None:
    images = np.random.default_rng(count).integers(0, 255, (count, channels, height, width), dtype=np.uint8)
    grid = np.asarray(image_grid(images, columns, padding, scale))
    grid = grid[..., None] if grid.ndim == 2 else grid
    rows = -(-count // columns)
    cell_height, cell_width = scale * height + padding, scale * width + padding
    assert grid.shape == (rows * cell_height + padding, columns * cell_width + padding, channels)
    covered = np.zeros(grid.shape[:2], dtype=bool)
    for number, image in enumerate(images):
        top, left = padding + number // columns * cell_height, padding + number % columns * cell_width
        for y in range(scale * height):
            for x in range(scale * width):
                assert (grid[top + y, left + x] == image[:, y // scale, x // scale]).all()
                covered[top + y, left + x] = True
    assert (grid[~covered] == (0 if channels == 4 else 255)).all()


@pytest.mark.parametrize(
    "images", [np.zeros((0, 3, 4, 4), np.uint8), np.zeros((2, 3, 4, 4)), np.zeros((3, 4, 4), np.uint8)]
)
def test_what_is_no_batch_of_images_is_refused(images: np.ndarray) -> None:
    with pytest.raises(DarkroomError, match="a grid needs at least one image"):
        image_grid(images, 2)


def test_a_png_is_written_over_a_read_only_link_of_the_cache(tmp_path: Path) -> None:
    cached, path = tmp_path / "cache", tmp_path / "deep" / "grid.png"
    cached.write_bytes(b"old")
    cached.chmod(0o444)
    path.parent.mkdir()
    path.symlink_to(cached)
    image = Image.new("RGB", (3, 2), (1, 2, 3))
    save_png(path, image)
    assert cached.read_bytes() == b"old"
    assert Image.open(path).tobytes() == image.tobytes()
    before = path.read_bytes()
    save_png(path, image)
    assert path.read_bytes() == before


def test_transparent_images_lie_on_a_checkerboard() -> None:
    images = np.zeros((2, 4, 16, 16), np.uint8)
    images[:, 0] = 200
    images[1, 3] = 255
    images[1, 3, :8] = 128
    board, image = opaque(images)
    assert set(np.unique(board)) == {204, 255} and (board == board[:1]).all()
    assert board[0, 0, 0] == 255 and board[0, 0, 4] == 204 and board[0, 4, 4] == 255
    assert (image[:, 8:] == np.array([200, 0, 0])[:, None, None]).all()
    assert image[0, 0, 0] == round((128 * 200 + 127 * 255) / 255)
    for channels in (1, 3):
        assert opaque(images[:, :channels]) is not None and (opaque(images[:, :channels]) == images[:, :channels]).all()


@pytest.mark.parametrize(("size", "scale"), [(8, 12), (32, 3), (48, 2), (64, 2), (65, 1), (96, 1), (2000, 1)])
def test_images_are_shown_in_whole_pixels_at_about_96(size: int, scale: int) -> None:
    assert shown_scale(size) == scale
    images = np.random.default_rng(0).integers(0, 256, (3, 3, size, size), dtype=np.uint8)
    sheet = np.asarray(contact_sheet(images, 3))
    assert sheet.shape == (scale * size + 4, 3 * (scale * size + 2) + 2, 3)
    assert (sheet[2 : 2 + scale * size : scale, 2 : 2 + scale * size : scale] == images[0].transpose(1, 2, 0)).all()


def test_a_picture_for_people_keeps_its_alpha() -> None:
    images = np.full((2, 4, 16, 16), 200, np.uint8)
    images[:, 3, :8] = 7
    for grid in (contact_sheet(images, 2), captioned_grid([images], ["a caption"], columns=1)):
        assert grid.mode == "RGBA" and {7, 200} < set(grid.getchannel("A").tobytes())
    assert blank((2, 4, 5, 5)).max() == 0 and blank((3, 5, 5)).min() == 255


@given(st.integers(0, 50), st.integers(0, 200))
def test_rows_are_spread_from_the_first_to_the_last(count: int, of: int) -> None:
    rows = evenly_spaced(count, of)
    assert len(rows) == min(count, of) and rows == sorted(set(rows))
    if len(rows) > 1:
        assert (rows[0], rows[-1]) == (0, of - 1)
        assert max(np.diff(rows)) - min(np.diff(rows)) <= 1


def drawn(*captions: str) -> bytes:
    groups = [np.zeros((1, 3, 40, 40), np.uint8)] * len(captions)
    return captioned_grid(groups, captions, columns=2).tobytes()


def test_letters_with_accents_are_drawn_without_them_and_others_stay():
    assert drawn("t\u00fcrkiye", "S\u00e3o Tom\u00e9") == drawn("turkiye", "Sao Tome")
    assert drawn("u\u0308ber") == drawn("uber")  # as macOS writes it
    assert drawn("woman\u2019s \u201ccup\u201d \u2013 \u00bd") == drawn('woman\'s "cup" - 1/2')
    assert drawn("\u56f3") != drawn("") and drawn("red heart") != drawn("red hear")
