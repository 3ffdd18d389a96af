"""Images as one `.npz` file, which the evaluator of ADM reads (Dhariwal and Nichol, 2021, arXiv 2105.05233)."""

import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

_NAME, _MINIMUM_TIME = "arr_0.npy", (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip file


class NpzWriter:
    """Writes a stream of images as `arr_0`, uint8 (N, H, W, C), grey ones as three equal channels, in little memory.

    A context; equal images give equal bytes.

    Args:
        path: of the file.
        images: N, how many there will be.
        shape: (C, H, W) of each.
    """

    def __init__(self, path: Path, images: int, shape: tuple[int, int, int]) -> None:
        channels, height, width = shape
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)
        # Of a size that is not known to the archive: from 2 GB on its fields are 64 bits wide.
        self._file = self._archive.open(zipfile.ZipInfo(_NAME, _MINIMUM_TIME), "w", force_zip64=True)
        stored = (images, height, width, 3 if channels == 1 else channels)
        header: dict[str, Any] = {"descr": "|u1", "fortran_order": False, "shape": stored}
        np.lib.format.write_array_header_1_0(self._file, header)

    def add(self, image: NDArray[np.uint8]) -> None:
        """Append an image, uint8 (C, H, W)."""
        self._file.write((image.repeat(3, axis=0) if len(image) == 1 else image).transpose(1, 2, 0).tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._archive.close()
