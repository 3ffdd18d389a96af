"""Write images as one `.npz` file for the evaluator of ADM (Dhariwal and Nichol, 2021, arXiv 2105.05233)."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAME, _MINIMUM_TIME = "arr_0.npy", (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip file


@contextmanager
def npz_writer(path: Path, images: int, shape: tuple[int, int, int]) -> Iterator[Callable[[NDArray[np.uint8]], None]]:
    """Write a stream of images as `arr_0`, uint8 (N, H, W, C), grey ones as three equal channels, in little memory.

    Equal images give equal bytes. There will be N `images`, each of `shape` (C, H, W).

    Returns:
        a context; the function that it gives appends an image, uint8 (C, H, W).
    """
    channels, height, width = shape
    stored = (images, height, width, 3 if channels == 1 else channels)
    header: dict[str, Any] = {"descr": "|u1", "fortran_order": False, "shape": stored}
    # The archive does not know the size in advance: from 2 GB on its fields must be 64 bits wide.
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive,
        archive.open(zipfile.ZipInfo(_NAME, _MINIMUM_TIME), "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array_header_1_0(file, header)

        def add(image: NDArray[np.uint8]) -> None:
            file.write((image.repeat(3, axis=0) if len(image) == 1 else image).transpose(1, 2, 0).tobytes())

        yield add
