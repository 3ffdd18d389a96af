"""What stages that generate write: the grid has a class a column, also where few images are of one."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from darkroom.artifacts.manifest import read_manifest
from darkroom.data.reader import ImageShards
from darkroom.stages.generated import write_generated

SIDE = 96 + 2  # of an image of 4 pixels, drawn at 96, and the padding beside it


def write(labels: list[int] | None, count: int, classes: int) -> np.ndarray:
    """Write images whose grey level is their number, and return the grey levels in the grid, -1 for white."""
    grey = np.arange(count, dtype=np.uint8)[:, None, None, None].repeat(4, axis=2).repeat(4, axis=3)
    write_generated(
        Path("out"),
        np.array_split(grey, 3),
        [f"class{number}" for number in range(classes)],
        shard_size=5,
        images=count,
        image_shape=(1, 4, 4),
        labels=None if labels is None else np.array(labels),
    )
    grid = np.asarray(Image.open("out/grid.png")).astype(int)
    fields = grid[2 + SIDE // 2 :: SIDE, 2 + SIDE // 2 :: SIDE]
    return np.where(fields == 255, -1, fields)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_column_ends_in_white_where_a_class_has_fewer_images() -> None:
    assert write([2, 0, 2, 2], 4, 3).tolist() == [[1, 0], [-1, 2], [-1, 3]]
    manifest = read_manifest(Path("out"), "samples")
    assert manifest["counts"] == {"class0": 1, "class1": 0, "class2": 3}
    images = ImageShards.open_folder(Path("out"), "samples")
    assert images.labels == ["class2", "class0", "class2", "class2"]


def test_any_ten_classes_of_many_have_a_column() -> None:
    labels = [*range(500, 520), 503]
    assert write(labels, 21, 1000).tolist() == [[*range(10)], [-1, -1, -1, 20, *[-1] * 6]]


def test_without_labels_and_of_one_class_there_are_no_columns() -> None:
    assert write(None, 5, 2).tolist() == write([1] * 5, 5, 2).tolist() == [[0, 1, 2, 3, 4]]
    assert write(None, 12, 0).tolist() == [[*range(10)], [10, 11, *[-1] * 8]]


def test_classes_of_one_name_are_counted_apart() -> None:
    grey = np.zeros((5, 1, 4, 4), dtype=np.uint8)
    names, labels = ["crane", "hen", "crane"], np.array([0, 2, 2, 1, 2])
    write_generated(Path("out"), [grey], names, 5, images=5, image_shape=(1, 4, 4), labels=labels)
    assert read_manifest(Path("out"), "samples")["counts"] == {"crane (0)": 1, "hen": 1, "crane (2)": 3}
