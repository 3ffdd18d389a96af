"""One side of `darkroom score`: images, published statistics, or both in one .npz."""

# No effect on any output: reads what a command names

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from darkroom.errors import DarkroomError
from darkroom.metrics.moments import Moments
from darkroom.tools.score.images import Drawn, Files, Images, Stored, in_folder, in_tar

_STATISTICS = {"mu": "sigma", "mu_s": "sigma_s"}


@dataclass(frozen=True)
class Side:
    """What a person named. `pool` and `spatial`: published statistics; their number of images is not known."""

    path: Path
    images: Images | None
    pool: Moments | None = None
    spatial: Moments | None = None


def open_side(path: Path, limit: int | None = None) -> Side:
    """Return the images or statistics at a path: a folder, a tar, or an .npz of ADM's or EDM's.

    Args:
        path: of a folder of images in any depth, or of tars; of a tar; of an .npz with `arr_0`, uint8 (N, H, W, C),
            or `mu` and `sigma`, of sFID's features also `mu_s` and `sigma_s`, or both.
        limit: at most so many of the images, drawn by a fixed seed.

    Raises:
        DarkroomError: nothing is there, or nothing that can be scored; names the file.
    """
    if path.is_dir():
        side = Side(path, in_folder(path))
    elif not path.is_file():
        raise DarkroomError(f"{path} is neither a folder nor a file.")
    elif path.suffix == ".npz":
        side = _npz(path)
    elif path.suffix == ".tar":
        entries = in_tar(path)
        if not entries:
            raise DarkroomError(f"{path} holds no image.")
        side = Side(path, Files(entries))
    else:
        raise DarkroomError(f"{path} is neither a folder, nor a .tar, nor an .npz.")
    if limit is not None and side.images is not None and len(side.images) > limit:
        return Side(path, Drawn(side.images, limit), side.pool, side.spatial)
    return side


def _npz(path: Path) -> Side:
    try:
        with np.load(path, allow_pickle=False) as file:
            keys = set(file.files)
            if "arr_0" not in keys and not {"mu", "sigma"} <= keys:
                raise DarkroomError(
                    f"{path} holds {', '.join(sorted(keys)) or 'nothing'}, and neither images, `arr_0`, nor "
                    "statistics, `mu` and `sigma`."
                )
            found = {
                mu: _moments(path, mu, np.asarray(file[mu]), np.asarray(file[sigma]))
                for mu, sigma in _STATISTICS.items()
                if {mu, sigma} <= keys
            }
    except (zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
        raise DarkroomError(f"{path} is no whole .npz of arrays ({error}): fetch it again.") from error
    return Side(path, Stored(path) if "arr_0" in keys else None, found.get("mu"), found.get("mu_s"))


def _moments(path: Path, name: str, mean: np.ndarray, cov: np.ndarray) -> Moments:
    if mean.ndim != 1 or cov.shape != (len(mean), len(mean)):
        raise DarkroomError(f"{path} holds `{name}` of shape {mean.shape} and a covariance of shape {cov.shape}.")
    if not (np.isfinite(mean).all() and np.isfinite(cov).all()):
        raise DarkroomError(f"{path} holds values in `{name}` or its covariance that are not finite.")
    wide = torch.from_numpy(cov.astype(np.float64))
    return Moments(0, torch.from_numpy(mean.astype(np.float64)), (wide + wide.T) / 2)
