"""Whether two sides and an extractor fit each other, before any network runs."""

from collections.abc import Sequence
from dataclasses import replace

from darkroom.errors import DarkroomError
from darkroom.models.evaluators.load import Extractor
from darkroom.tools.score.images import CHANNELS
from darkroom.tools.score.sides import Side


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
