"""Batches of generated images that outlive a kill: files in the stage's state folder, shared among processes.

STATE/batches-CODE/000000000125.npy holds the images from number 125 on, uint8 (n, C, H, W); CODE is a hash of the code
and of the device that made them, since another device rounds sums otherwise. A batch is a function of its number and
the settings alone, so who made it, and when, is all the same.
"""

import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.atomic import write_bytes
from darkroom.artifacts.manifest import sha256_json
from darkroom.models.generators.sampler import Request
from darkroom.training.state import running_code


class KeptBatches:
    """The batches of a request in a folder.

    Args:
        folder: theirs alone.
        request: how many images in which batches.
    """

    def __init__(self, folder: Path, request: Request) -> None:
        self.folder, self._request = folder, request

    @staticmethod
    def place(state: Path, device: str = "cpu") -> Path:
        """Return the folder in a stage's state for batches of the code and device that run; others are removed.

        Args:
            state: the stage's.
            device: what the networks run on, `cpu` or the name of a GPU.
        """
        folder = state / f"batches-{sha256_json({'code': running_code(state), 'device': device})[:16]}"
        for other in state.glob("batches-*"):
            if other != folder:
                shutil.rmtree(other)
        return folder

    def missing(self, rank: int = 0, processes: int = 1) -> list[int]:
        """Return the first image of each batch that is not there; of several processes, of those that are one's own."""
        starts = range(0, self._request.images, self._request.batch)
        return [start for start in starts[rank::processes] if not self._path(start).is_file()]

    def keep(self, start: int, images: NDArray[np.uint8]) -> None:
        """Write a batch, whole or not at all."""
        data = BytesIO()
        np.save(data, images)
        write_bytes(self._path(start), data.getvalue())

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        """Yield all batches in order, one at a time in memory."""
        for start in range(0, self._request.images, self._request.batch):
            yield np.load(self._path(start))

    def remove(self) -> None:
        """Remove all batches."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, start: int) -> Path:
        return self.folder / f"{start:012d}.npy"
