"""The `.npz` of ADM's evaluator: what NumPy reads, the same bytes for the same images, in little memory."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from darkroom.data.npz import npz_writer


def write(path: Path, images: np.ndarray) -> bytes:
    with npz_writer(path, len(images), images.shape[1:]) as add:
        for image in images:
            add(image)
    return path.read_bytes()


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_numpy_reads_it(tmp_path: Path, channels: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, channels, 4, 6), dtype=np.uint8)
    first = write(tmp_path / "a.npz", images)
    stored = np.load(tmp_path / "a.npz")["arr_0"]
    wanted = images.repeat(3, axis=1) if channels == 1 else images
    np.testing.assert_array_equal(stored, wanted.transpose(0, 2, 3, 1))
    assert write(tmp_path / "b.npz", images) == first
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        (entry,) = archive.infolist()
        assert entry.date_time == (1980, 1, 1, 0, 0, 0) and archive.testzip() is None
