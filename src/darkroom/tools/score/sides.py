"""Open the inputs of `darkroom score`: images, published statistics, or both in one .npz; and compare them.

A published .npz has images, `arr_0`, or statistics, `mu` and `sigma`, for sFID `mu_s` and `sigma_s`; or both.
"""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.data.images import to_pil
from darkroom.errors import DarkroomError
from darkroom.metrics.moments import Moments
from darkroom.models.evaluators.load import Extractor
from darkroom.tools.score.images import CHANNELS, Images, Pixels, in_folder, in_tar, of_entries, prepared, size_text

_STATISTICS = {"mu": "sigma", "mu_s": "sigma_s"}
_NEGATIVE = 1e-4  # fraction of the largest eigenvalue: more negative ones are no rounding errors, even in float32
# Errors when reading a damaged archive, header and content.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, EOFError, OSError, MemoryError),
    *(ArithmeticError, LookupError, NotImplementedError, SyntaxError, TypeError, ValueError),
)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; an error while it is read becomes one sentence that names it."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DarkroomError(f"{path} is not a complete .npz of arrays ({reason}): download it again.") from error


@contextmanager
def _images(path: Path) -> Iterator[tuple[IO[bytes], tuple[int, ...], bool, np.dtype[Any]]]:
    """Open `arr_0` behind its header; yield the file, the shape, whether it is in Fortran's order, and the type."""
    with _archive(path) as archive, archive.open("arr_0.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        size = file.tell() + math.prod(shape) * dtype.itemsize
        if dtype.hasobject or archive.getinfo("arr_0.npy").file_size != size:
            raise ValueError("`arr_0` contains objects, or its length differs from its header")
        yield file, shape, fortran, dtype


def stored(path: Path, size: int | None = None) -> Images:
    """Return the images `arr_0` of an .npz, uint8 (N, H, W, C), read in pieces, as they may exceed the memory.

    Damage is found when the archive is read, by its checksum. `size`: see `of_entries`.
    """
    with _images(path) as (_, shape, fortran, dtype):
        pass
    if dtype != np.uint8 or len(shape) != 4 or shape[3] not in CHANNELS or fortran:
        raise DarkroomError(
            f"{path}: `arr_0` is {dtype} {shape}, but images are uint8 (N, H, W, C) with C of 1, 3 or 4."
        )
    count, height, width, channels = shape

    def read(numbers: Sequence[int]) -> Iterator[Pixels]:
        chosen = set(numbers)
        with _images(path) as (file, *_):
            for number in range(count):
                data = file.read(height * width * channels)
                if number in chosen:
                    pixels = np.frombuffer(data, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
                    yield pixels if size is None else prepared(to_pil(pixels), size)

    shown = (channels, height, width) if size is None else (3, size, size)
    return Images(shown, count, lambda number: f"{path}, image {number}", read)


def read_npz(path: Path, size: int | None = None) -> tuple[Images | None, dict[str, Moments]]:
    """Return the images of an .npz, None if it has none, and its statistics by the name of their mean.

    `size`: see `of_entries`.

    Raises:
        DarkroomError: the file has neither, is damaged, or has impossible statistics; the message names it.
    """
    with _archive(path), np.load(path) as arrays:
        keys = set(arrays.files)
        pairs = {mean: (arrays[mean], arrays[cov]) for mean, cov in _STATISTICS.items() if {mean, cov} <= keys}
    if "arr_0" not in keys and "mu" not in pairs:
        raise DarkroomError(
            f"{path} has {', '.join(sorted(keys)) or 'no arrays'}, but neither images, `arr_0`, nor statistics, `mu` "
            "and `sigma`."
        )
    statistics = {name: _moments(path, name, *both) for name, both in pairs.items()}
    return stored(path, size) if "arr_0" in keys else None, statistics


def _moments(path: Path, name: str, mean: NDArray[Any], cov: NDArray[Any]) -> Moments:
    """Return statistics as moments of an unknown number of images, 0.

    Raises:
        DarkroomError: they are not real or not finite, have other shapes, or the covariance is invalid.
    """
    wrong = ""
    if mean.ndim != 1 or cov.shape != (len(mean), len(mean)):
        wrong = f"of shape {mean.shape} and a covariance of shape {cov.shape}"
    elif not {mean.dtype.kind, cov.dtype.kind} <= set("fiu"):
        wrong = f"or its covariance as {mean.dtype} and {cov.dtype}, not as real numbers"
    elif not (np.isfinite(mean).all() and np.isfinite(cov).all()):
        wrong = "or its covariance with values that are not finite"
    else:
        wide = torch.from_numpy(cov.astype(np.float64))
        wide = (wide + wide.T) / 2
        values = torch.linalg.eigvalsh(wide)
        if values[0] >= -_NEGATIVE * values.abs().max():
            return Moments(0, torch.from_numpy(mean.astype(np.float64)), wide)
        wrong = f"and `{_STATISTICS[name]}`, which is not a covariance: it has the eigenvalue {values[0]:.3g}"
    raise DarkroomError(f"{path} has `{name}` {wrong}: download it again.")


@dataclass(frozen=True)
class Side:
    """One input. `pool` and `spatial`: published statistics, of an unknown number of images."""

    path: Path
    images: Images | None
    pool: Moments | None = None
    spatial: Moments | None = None


def open_side(path: Path, limit: int | None = None, size: int | None = None) -> Side:
    """Return the images or statistics at a path: a folder, a tar, or an .npz of ADM's or EDM's.

    A folder holds images at any depth, or tars; an .npz holds `arr_0`, uint8 (N, H, W, C), or `mu` and `sigma`, for
    sFID also `mu_s` and `sigma_s`, or both. With `limit`, at most that many images are drawn by a fixed seed; with
    `size`, each is cropped to its middle square and resized to that many pixels a side, RGB.

    Raises:
        DarkroomError: the path does not exist, or cannot be scored; the message names the file.
    """
    if path.is_dir():
        side = Side(path, in_folder(path, size))
    elif path.suffix == ".npz":
        images, statistics = read_npz(path, size)
        side = Side(path, images, statistics.get("mu"), statistics.get("mu_s"))
    elif path.suffix == ".tar":
        entries = in_tar(path)
        if not entries:
            raise DarkroomError(f"{path} has no images.")
        side = Side(path, of_entries(entries, size))
    else:
        raise DarkroomError(f"{path} is not a folder, a .tar or an .npz.")
    if limit is not None and side.images is not None:
        side.images.draw(limit)
    return side


def fitting(samples: Side, real: Side, name: str, extractor: Extractor, shape: Sequence[int] | None) -> Side:
    """Return the reference for the extractor `name`.

    Statistics next to images belong to Inception, as ADM publishes them: other networks ignore them. `shape`,
    (C, H, W), is that of the images that the extractor was trained on; None: it resizes images.

    Raises:
        DarkroomError: one side is grey and the other is not, images do not have the shape of the extractor, or
            statistics have features of another length.
    """
    sides = [(side.path, side.images.shape) for side in (samples, real) if side.images is not None]
    for path, actual in sides:
        if shape is not None and list(actual) != list(shape):
            raise DarkroomError(
                f"{path} has images of {size_text(actual)}, but the extractor was trained on {size_text(shape)}: crop "
                "or convert them first, or use another --extractor."
            )
    grey = {path: actual[0] == 1 for path, actual in sides}
    if len(set(grey.values())) == 2:
        one, other = sorted(grey, key=lambda path: not grey[path])
        raise DarkroomError(f"{one} has grey images, but {other} does not: convert one of the sets.")
    if name != "inception" and real.images is not None:
        real = replace(real, pool=None, spatial=None)
    widths = getattr(extractor.network, "widths", (extractor.dim, None))
    for key, moments, width in (("mu", real.pool, extractor.dim), ("mu_s", real.spatial, widths[1])):
        if moments is not None and width is not None and len(moments.mean) != width:
            raise DarkroomError(
                f"{real.path} has statistics `{key}` of {len(moments.mean)} features, but {name} has {width}: they "
                "belong to another extractor."
            )
    return real
