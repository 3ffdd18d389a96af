"""Real images beside generated ones: a class a column, drawn at random, and the nearest of the first generated ones."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from darkroom.data.grid import captioned_grid
from darkroom.data.reader import ImageShards
from darkroom.metrics.memorisation import Near
from darkroom.metrics.nearest import Closest
from darkroom.stages.copies import columns_of, draw_neighbours, draw_originals, draw_real
from data.making import make_part

COLUMNS = ["3", "11", "nobody", "0"]
EACH = 98  # pixels: images of 6 are drawn at 96, with 2 between them


@pytest.fixture
def train(tmp_path: Path) -> ImageShards:
    make_part(tmp_path, "one", 0, 200)
    return ImageShards.open_parts(["one"], "train", tmp_path)


@pytest.fixture
def made(tmp_path: Path) -> ImageShards:
    make_part(tmp_path, "two", 200, 300)
    return ImageShards.open_parts(["two"], "train", tmp_path)


def shown(path: Path) -> np.ndarray:
    """Return the images of a picture, uint8 (rows, columns, 3, 6, 6)."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture)
    rows, columns = ((length - 2) // EACH for length in pixels.shape[:2])
    cells = pixels[2:, 2:].reshape(rows, EACH, columns, EACH, 3)
    return cells[:, 8:96:16, :, 8:96:16].transpose(0, 2, 4, 1, 3)


def test_the_columns_are_the_first_ten_classes_that_there_are() -> None:
    classes = [f"class {number}" for number in range(14)]
    assert columns_of([*reversed(classes[2:]), None], classes) == classes[2:12]
    assert columns_of([None, None], classes) == []


def test_real_images_of_one_class_stand_in_rows(train: ImageShards, tmp_path: Path) -> None:
    draw_real(tmp_path / "real.png", train, ["3"])
    real = shown(tmp_path / "real.png")
    of_class = train.__getitems__([row for row, label in enumerate(train.labels) if label == "3"])
    cells = real.reshape(-1, *real.shape[2:])[: min(50, len(of_class))]
    assert real.shape[1] == min(10, len(of_class)) and len(cells) > 1
    assert all(any((image == other).all() for other in of_class) for image in cells)


def test_real_images_are_drawn_of_each_class(train: ImageShards, tmp_path: Path) -> None:
    draw_real(tmp_path / "real.png", train, COLUMNS)
    real = shown(tmp_path / "real.png")
    assert real.shape[:2] == (5, 4) and (real[:, 2] == 255).all()
    drawn_rows = []
    for column in (0, 1, 3):
        rows = [row for row, label in enumerate(train.labels) if label == COLUMNS[column]]
        stored = train.__getitems__(rows)
        found = [[(image == other).all() for other in stored].index(True) for image in real[: len(rows), column]]
        assert len(set(found)) == len(found) == min(5, len(rows))
        drawn_rows += [found]
    assert any(found != sorted(found) for found in drawn_rows)  # at random, not the first ones


def test_below_the_first_images_of_each_class_stand_their_neighbours(
    train: ImageShards, made: ImageShards, tmp_path: Path
) -> None:
    rows = np.random.default_rng(0).permutation(len(made)).tolist()
    nearest = {space: torch.arange(len(rows)) + number for number, space in enumerate(("features", "pixels", "moved"))}
    near = Near(rows, {space: Closest(row.double(), row.double(), row) for space, row in nearest.items()})
    count = draw_neighbours(tmp_path / "near.png", made, near, train, COLUMNS)
    pictures = shown(tmp_path / "near.png")
    assert count == 3 and pictures.shape[:2] == (9, 4) and (pictures[:, 2] == 255).all()
    for column in (0, 1, 3):
        first = [row for row in range(len(made)) if made.labels[row] == COLUMNS[column]][:3]
        for at, row in enumerate(first):
            place = rows.index(row)
            expected = np.stack([made[row], train[place], train[place + 1]])  # features first, then pixels
            np.testing.assert_array_equal(pictures[3 * at : 3 * at + 3, column], expected)
        assert (pictures[3 * len(first) :, column] == 255).all()


def test_images_without_classes_stand_ten_in_a_row(train: ImageShards, made: ImageShards, tmp_path: Path) -> None:
    draw_real(tmp_path / "real.png", train, [])
    assert shown(tmp_path / "real.png").shape[:2] == (5, 10)
    near = Near(list(range(12)), {space: Closest(*3 * [torch.arange(12)]) for space in ("features", "pixels")})
    assert draw_neighbours(tmp_path / "near.png", made, near, train, []) == 2
    pictures = shown(tmp_path / "near.png")
    assert pictures.shape[:2] == (6, 10)
    np.testing.assert_array_equal(pictures[::3].reshape(20, 3, 6, 6)[:12], made.__getitems__(range(12)))


def test_real_images_of_captions_stand_where_the_images_of_these_do(
    train: ImageShards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of a caption that an image lacks its key is meant; of one that several have, they take turns."""
    captions, keys = list(train.captions), train.keys_of(range(len(train)))
    captions[9] = captions[7]
    monkeypatch.setattr(ImageShards, "captions", captions)
    rows = [7, 4, 9, 7, *range(80, 10, -1)]
    asked = [captions[row] or keys[row] for row in rows]
    assert captions[4] is None and draw_originals(tmp_path / "real.png", SimpleNamespace(captions=asked), train)
    expected = captioned_grid([train[row][None] for row in rows[:64]], asked[:64], 8)
    with Image.open(tmp_path / "real.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), np.asarray(expected))
    assert not draw_originals(tmp_path / "other.png", SimpleNamespace(captions=["of none"]), train)
    monkeypatch.setattr(ImageShards, "remote", True)
    assert not draw_originals(tmp_path / "other.png", SimpleNamespace(captions=asked), train)
    assert not (tmp_path / "other.png").exists()
