"""One side of `darkroom score`: images, published statistics, or both in one .npz."""

from dataclasses import dataclass
from pathlib import Path

from darkroom.errors import DarkroomError
from darkroom.metrics.moments import Moments
from darkroom.tools.score.images import Drawn, Files, Images, Sized, in_folder, in_tar
from darkroom.tools.score.npz import read_npz


@dataclass(frozen=True)
class Side:
    """What a person named. `pool` and `spatial`: published statistics; their number of images is not known."""

    path: Path
    images: Images | None
    pool: Moments | None = None
    spatial: Moments | None = None


def open_side(path: Path, limit: int | None = None, size: int | None = None) -> Side:
    """Return the images or statistics at a path: a folder, a tar, or an .npz of ADM's or EDM's.

    Args:
        path: of a folder of images in any depth, or of tars; of a tar; of an .npz with `arr_0`, uint8 (N, H, W, C),
            or `mu` and `sigma`, of sFID's features also `mu_s` and `sigma_s`, or both.
        limit: at most so many of the images, drawn by a fixed seed.
        size: each image is cropped to its middle square and resized to so many pixels a side, RGB; None: it stays.

    Raises:
        DarkroomError: nothing is there, or nothing that can be scored; names the file.
    """
    if path.is_dir():
        side = Side(path, in_folder(path, size))
    elif not path.is_file():
        raise DarkroomError(f"{path} is neither a folder nor a file.")
    elif path.suffix == ".npz":
        images, statistics = read_npz(path)
        sized = images if images is None or size is None else Sized(images, size)
        side = Side(path, sized, statistics.get("mu"), statistics.get("mu_s"))
    elif path.suffix == ".tar":
        entries = in_tar(path)
        if not entries:
            raise DarkroomError(f"{path} holds no image.")
        side = Side(path, Files(entries, size))
    else:
        raise DarkroomError(f"{path} is neither a folder, nor a .tar, nor an .npz.")
    if limit is not None and side.images is not None and len(side.images) > limit:
        return Side(path, Drawn(side.images, limit), side.pool, side.spatial)
    return side
