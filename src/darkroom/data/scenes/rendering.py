"""Render scenes: the distance of a pixel's centre from the edge of a form gives the covered fraction.

Only sums, products, comparisons and square roots of float64 are used, one NumPy call each. They are exactly rounded,
so the pixels are the same on every machine. A distance is measured from the nearest of the lines that bound the form:
beside an edge that is the distance from the form.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.data.scenes.scene import COLOURS, Scene, Thing

Array = NDArray[np.float64]

_HALF_SIDE = 0.88  # of the square, as a fraction of the radius
_ARM = 0.31  # half the width of a bar of the cross
_HOLE = 0.52  # inner radius of the ring
_SIN_60 = 0.8660254037844386
_TRIANGLE = 1.1547005383792515  # circumradius of a triangle of width 2
_STAR = 1.0514622242382672  # circumradius of a five-pointed star of width 2
_COS_36, _COS_72 = 0.8090169943749475, 0.30901699437494745
# Directions from the centre of the star to its tips; each is normal to the line through the two neighbouring tips.
_TIPS = (
    (0.0, -1.0),
    (0.9510565162951535, -0.30901699437494745),
    (0.5877852522924731, 0.8090169943749475),
    (-0.5877852522924731, 0.8090169943749475),
    (-0.9510565162951535, -0.30901699437494745),
)


def _circle(x: Array, y: Array, radius: float) -> Array:
    return np.sqrt(x * x + y * y) - radius


def _square(x: Array, y: Array, radius: float) -> Array:
    return np.maximum(np.abs(x), np.abs(y)) - _HALF_SIDE * radius


def _triangle(x: Array, y: Array, radius: float) -> Array:
    """An equilateral triangle with the tip above: inside all three lines."""
    around = _TRIANGLE * radius
    y = y - around / 4  # the centre is the middle of the height
    return np.maximum(y, _SIN_60 * np.abs(x) - 0.5 * y) - around / 2


def _star(x: Array, y: Array, radius: float) -> Array:
    """A pentagram, bounded by five lines: inside at least four of them, so the second largest distance counts.

    The pentagon around the tips is a bound too: without it the tips would reach two pixels too far.
    """
    around = _STAR * radius
    y = y - 0.0954915 * around  # the centre is the middle of the height
    distances = [right * x + down * y for right, down in _TIPS]
    largest, second = np.maximum(distances[0], distances[1]), np.minimum(distances[0], distances[1])
    smallest = second
    for distance in distances[2:]:
        second = np.maximum(second, np.minimum(largest, distance))
        largest, smallest = np.maximum(largest, distance), np.minimum(smallest, distance)
    return np.maximum(second - _COS_72 * around, -smallest - _COS_36 * around)


def _cross(x: Array, y: Array, radius: float) -> Array:
    x, y, arm = np.abs(x), np.abs(y), _ARM * radius
    return np.minimum(np.maximum(x - radius, y - arm), np.maximum(x - arm, y - radius))


def _ring(x: Array, y: Array, radius: float) -> Array:
    middle, half = (1 + _HOLE) / 2 * radius, (1 - _HOLE) / 2 * radius
    return np.abs(np.sqrt(x * x + y * y) - middle) - half


# Each maps x (1, W) and y (H, 1) from the centre, and a radius, all in pixels, to distances (H, W), negative inside.
_DISTANCES: dict[str, Callable[[Array, Array, float], Array]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "ring": _ring,
}


def _span(centre: float, radius: float, size: int) -> tuple[int, int]:
    """Return the range of pixels along an axis that a form may touch: the first, and one past the last."""
    return max(0, int(centre - radius) - 1), min(size, int(centre + radius) + 2)


def coverage(thing: Thing, size: int) -> tuple[slice, slice, Array]:
    """Return the rows and columns of a form, and the fraction of each pixel that it covers, (H, W), 0 to 1."""
    x, y, radius = thing.x * size, thing.y * size, thing.radius * size
    (left, right), (top, bottom) = _span(x, radius, size), _span(y, radius, size)
    across = (np.arange(left, right, dtype=np.float64) + (0.5 - x))[None, :]
    down = (np.arange(top, bottom, dtype=np.float64) + (0.5 - y))[:, None]
    distance = _DISTANCES[thing.form](across, down, radius)
    share = np.minimum(np.maximum(0.5 - distance, 0.0), 1.0)
    return slice(top, bottom), slice(left, right), share


def render(scene: Scene, size: int, transparent: bool = False) -> Image.Image:
    """Return a scene as a picture of size x size pixels, RGB.

    transparent: without a background, as RGBA: alpha is the covered fraction, and colours are not multiplied by it.
    """
    if transparent:
        return Image.fromarray(_transparent(scene, size))
    picture = np.empty((size, size, 3), dtype=np.uint8)
    picture.reshape(size, -1)[:] = np.tile(np.array(scene.background, dtype=np.uint8), size)  # a row at a time: faster
    for thing in scene.objects:
        rows, columns, share = coverage(thing, size)
        below = picture[rows, columns].astype(np.float64)  # (H, W, 3)
        picture[rows, columns] = np.rint(below + share[..., None] * (np.array(COLOURS[thing.colour]) - below))
    return Image.fromarray(picture)


def _transparent(scene: Scene, size: int) -> NDArray[np.uint8]:
    picture = np.zeros((size, size, 4), dtype=np.uint8)
    for thing in scene.objects:
        rows, columns, share = coverage(thing, size)
        part, alpha = picture[rows, columns], np.rint(255 * share).astype(np.uint8)
        more = alpha > part[..., 3]
        part[more, :3] = COLOURS[thing.colour]
        part[more, 3] = alpha[more]
    return picture
