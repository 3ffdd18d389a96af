"""An .npz as others publish it: images, `arr_0`, and statistics, `mu` and `sigma`, of sFID `mu_s` and `sigma_s`."""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from darkroom.errors import DarkroomError
from darkroom.metrics.moments import Moments
from darkroom.tools.score.images import CHANNELS, Images, Pixels, prepared

_STATISTICS = {"mu": "sigma", "mu_s": "sigma_s"}
_NEGATIVE = 1e-4  # of the largest eigenvalue: below minus this it is no rounding, also in float32
# What reading a damaged archive raises, header and content.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, EOFError, OSError, MemoryError),
    *(ArithmeticError, LookupError, NotImplementedError, SyntaxError, TypeError, ValueError),
)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; what goes wrong with it while it is read is one sentence that names it."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DarkroomError(f"{path} is no whole .npz of arrays ({reason}): fetch it again.") from error


@contextmanager
def _array(archive: zipfile.ZipFile, name: str) -> Iterator[tuple[IO[bytes], tuple[int, ...], bool, np.dtype[Any]]]:
    """Open an array behind its header; yield the file, the shape, whether it is in Fortran's order, and the type.

    Raises:
        ValueError: it holds objects, or the file is not as long as its header says.
    """
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError(f"`{name}` holds objects")
        size = file.tell() + math.prod(shape) * dtype.itemsize
        if archive.getinfo(f"{name}.npy").file_size != size:
            raise ValueError(f"`{name}` is not as long as its header says")
        yield file, shape, fortran, dtype


class Stored(Images):
    """Images in an .npz, `arr_0`, uint8 (N, H, W, C), read piece by piece: the file may be larger than the memory.

    Damage is found when the archive is read, by its checksum. `size`: see `Files`.
    """

    def __init__(self, path: Path, size: int | None = None) -> None:
        self._path, self._size = path, size
        with _archive(path) as archive, _array(archive, "arr_0") as (_, shape, fortran, dtype):
            pass
        if dtype != np.uint8 or len(shape) != 4 or shape[3] not in CHANNELS or fortran:
            raise DarkroomError(
                f"{path} holds `arr_0` of {dtype} {shape}, and images are uint8 (N, H, W, C) with C of 1, 3 or 4."
            )
        super().__init__(shape[0])
        self._count, self._stored = shape[0], shape[1:]
        self.shape = (shape[3], shape[1], shape[2]) if size is None else (3, size, size)

    def _name(self, number: int) -> str:
        return f"{self._path}, image {number}"

    def _read(self, numbers: Sequence[int]) -> Iterator[Pixels]:
        wanted = set(numbers)
        with _archive(self._path) as archive, _array(archive, "arr_0") as (file, *_):
            for number in range(self._count):
                data = file.read(math.prod(self._stored))
                if number in wanted:
                    pixels = np.frombuffer(data, np.uint8).reshape(self._stored)
                    if self._size is None:
                        yield pixels.transpose(2, 0, 1)
                    else:
                        yield prepared(
                            Image.fromarray(pixels.squeeze(2) if self._stored[2] == 1 else pixels), self._size
                        )


def read_npz(path: Path, size: int | None = None) -> tuple[Stored | None, dict[str, Moments]]:
    """Return the images of an .npz, None where it holds none, and its statistics by the name of their mean.

    `size`: see `Files`.

    Raises:
        DarkroomError: it holds neither, is damaged, or holds statistics that no images have; names the file.
    """
    with _archive(path) as archive:
        keys = {name.removesuffix(".npy") for name in archive.namelist()}
        pairs = {mean: (mean, cov) for mean, cov in _STATISTICS.items() if {mean, cov} <= keys}
        found = {mean: [_read(archive, name) for name in pair] for mean, pair in pairs.items()}
    if "arr_0" not in keys and "mu" not in found:
        raise DarkroomError(
            f"{path} holds {', '.join(sorted(keys)) or 'nothing'}, and neither images, `arr_0`, nor statistics, `mu` "
            "and `sigma`."
        )
    statistics = {name: _moments(path, name, *both) for name, both in found.items()}
    return Stored(path, size) if "arr_0" in keys else None, statistics


def _read(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with _array(archive, name) as (file, shape, fortran, dtype):
        return np.frombuffer(file.read(), dtype).reshape(shape, order="F" if fortran else "C")


def _moments(path: Path, name: str, mean: NDArray[Any], cov: NDArray[Any]) -> Moments:
    """Return statistics as moments of an unknown number of images, 0.

    Raises:
        DarkroomError: they are no real numbers, not finite, of other shapes, or the covariance is none.
    """
    wrong = ""
    if mean.ndim != 1 or cov.shape != (len(mean), len(mean)):
        wrong = f"of shape {mean.shape} and a covariance of shape {cov.shape}"
    elif not {mean.dtype.kind, cov.dtype.kind} <= set("fiu"):
        wrong = f"or its covariance as {mean.dtype} and {cov.dtype}, and not real numbers"
    elif not (np.isfinite(mean).all() and np.isfinite(cov).all()):
        wrong = "or its covariance with values that are not finite"
    else:
        wide = torch.from_numpy(cov.astype(np.float64))
        wide = (wide + wide.T) / 2
        values = torch.linalg.eigvalsh(wide)
        if values[0] >= -_NEGATIVE * values.abs().max():
            return Moments(0, torch.from_numpy(mean.astype(np.float64)), wide)
        wrong = f"and `{_STATISTICS[name]}`, which is no covariance: it has the eigenvalue {values[0]:.3g}"
    raise DarkroomError(f"{path} holds `{name}` {wrong}: fetch it again.")
