"""The sides of `darkroom score`: images, published statistics, or both in one .npz; and whether two fit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from darkroom.errors import DarkroomError
from darkroom.metrics.moments import Moments
from darkroom.models.evaluators.load import Extractor
from darkroom.tools.score.images import CHANNELS, Files, Images, in_folder, in_tar
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
        images, statistics = read_npz(path, size)
        side = Side(path, images, statistics.get("mu"), statistics.get("mu_s"))
    elif path.suffix == ".tar":
        entries = in_tar(path)
        if not entries:
            raise DarkroomError(f"{path} holds no image.")
        side = Side(path, Files(entries, size))
    else:
        raise DarkroomError(f"{path} is neither a folder, nor a .tar, nor an .npz.")
    if limit is not None and side.images is not None:
        side.images.draw(limit)
    return side


def fitting(made: Side, real: Side, name: str, extractor: Extractor, shape: Sequence[int] | None) -> Side:
    """Return the reference as the extractor called `name` compares with it.

    Statistics beside images are Inception's, as ADM publishes them: for another network they are left out.

    Args:
        made: the samples.
        real: the reference.
        name: of the extractor.
        extractor: it.
        shape: (C, H, W) of the images that it was trained on; None: it resizes images.

    Raises:
        DarkroomError: grey images beside colour ones, images of another shape than the extractor's, or statistics of
            features of another length.
    """
    sides = [(side.path, side.images.shape) for side in (made, real) if side.images is not None]
    for path, found in sides:
        if shape is not None and list(found) != list(shape):
            raise DarkroomError(
                f"{path} holds images of {size(found)}, and the extractor was trained on {size(shape)}: crop or "
                "convert them first, or name another --extractor."
            )
    grey = {path: found[0] == 1 for path, found in sides}
    if len(set(grey.values())) == 2:
        one, other = sorted(grey, key=lambda path: not grey[path])
        raise DarkroomError(f"{one} holds grey images and {other} does not: convert one of the sets.")
    if name != "inception" and real.images is not None:
        real = replace(real, pool=None, spatial=None)
    widths = getattr(extractor.network, "widths", (extractor.dim, None))
    for what, moments, wanted in (("mu", real.pool, extractor.dim), ("mu_s", real.spatial, widths[1])):
        if moments is not None and wanted is not None and len(moments.mean) != wanted:
            raise DarkroomError(
                f"{real.path} holds statistics `{what}` of {len(moments.mean)} features, and {name} has {wanted}: they "
                "are another extractor's."
            )
    return real


def size(shape: Sequence[int]) -> str:
    """Return a shape (C, H, W) for people."""
    channels, height, width = shape
    return f"{height} x {width} pixels, {CHANNELS[channels]}"
