"""Draw random scenes. A scene is a function of its index, the seed and the requested kinds.

Lengths are fractions of the side of the picture, from 0 to 1, x to the right and y downwards. So a scene is the same at
any image size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darkroom.rng import generator

# All colours and backgrounds are far from each other; a test measures the distances (CIE Lab).
COLOURS = {
    "red": (222, 24, 36),
    "orange": (255, 128, 0),
    "yellow": (255, 222, 0),
    "green": (22, 150, 45),
    "cyan": (0, 200, 220),
    "blue": (30, 70, 230),
    "purple": (125, 40, 160),
    "pink": (255, 120, 190),
}
FORMS = ("circle", "square", "triangle", "star", "cross", "ring")
RADII = {"small": (0.11, 0.125), "large": (0.175, 0.19)}  # range of the half side of the bounding box of a form
BACKGROUNDS = (
    (244, 244, 244),
    (226, 226, 226),
    (238, 233, 224),
    (222, 230, 236),
    (20, 20, 20),
    (44, 44, 44),
    (34, 38, 48),
    (46, 38, 34),
)
KINDS = ("position", "count", "relation")  # all but "single", which has captions of its own
_SINGLE, _SHIFT = (0.34, 0.42), 0.05  # of the kind single: range of the radius, maximum shift from the centre
MARGIN = 0.02  # distance between the bounding box of a form and the border
GAP = 0.03  # distance between the bounding boxes of two forms
# The ranges of a centre that is "left" (or "top"), neither, and "right" (or "bottom").
BANDS = ((0.0, 0.32), (0.43, 0.57), (0.68, 1.0))
RELATIONS = ("left of", "right of", "above", "below")
STREAM = "scenes"  # name of the random stream of the scenes of the data
_TRIES = 64  # random arrangements made at once

Centres = NDArray[np.float64]  # x, y of each centre in each arrangement, (N, count, 2)


@dataclass(frozen=True)
class Thing:
    """A form with its centre (x, y) and its radius, half the side of its bounding box."""

    size: str
    colour: str
    form: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Scene:
    """One thing, several things that differ only in their positions, or two things in a relation, in this order."""

    objects: tuple[Thing, ...]
    background: tuple[int, int, int]


class _SceneRng:
    """Random numbers of one scene. All come from `random()`, whose stream is the most stable across NumPy versions."""

    def __init__(self, seed: int, index: int, stream: str) -> None:
        self.generator = generator(seed, stream, index)

    def number(self, low: float, high: float) -> float:
        return low + (high - low) * float(self.generator.random())

    def below(self, count: int) -> int:
        return int(self.generator.random() * count)

    def places(
        self, count: int, radius: float, fits: Callable[[Centres], NDArray[np.bool_]]
    ) -> list[tuple[float, float]]:
        """Return x, y of `count` random centres whose boxes are within the border and fit (rejection sampling)."""
        low = radius + MARGIN
        while True:
            tries = low + (1 - 2 * low) * self.generator.random((_TRIES, count, 2))
            fitting = np.flatnonzero(fits(tries))
            if len(fitting):
                return [(float(x), float(y)) for x, y in tries[fitting[0]]]


def scene(seed: int, index: int, kinds: Sequence[str] = KINDS, stream: str = STREAM) -> Scene:
    """Return scene number `index` of a seed; its kind is uniform over `kinds`.

    kinds: "position": one thing at one of nine positions; "count": two or three equal things; "relation": two things
        of different colour or form, one left of, right of, above or below the other; "single": one thing that fills
        most of the picture, on a background of another colour.
    stream: the name of the random stream. Another name gives other scenes for every seed: the scenes that an evaluator
        is trained on are never data.
    """
    draws = _SceneRng(seed, index, stream)
    kind = kinds[draws.below(len(kinds))]
    background = BACKGROUNDS[draws.below(len(BACKGROUNDS))]
    if kind == "single":
        return _single(draws)
    objects = {"position": _one, "count": _several, "relation": _two}[kind](draws)
    return Scene(objects, background)


def _words(draws: _SceneRng) -> tuple[str, str, str]:
    colours = tuple(COLOURS)
    return tuple(RADII)[draws.below(2)], colours[draws.below(len(colours))], FORMS[draws.below(len(FORMS))]


def _one(draws: _SceneRng) -> tuple[Thing, ...]:
    size, colour, form = _words(draws)
    radius = draws.number(*RADII[size])
    least, most = radius + MARGIN, 1 - radius - MARGIN
    x, y = (draws.number(max(low, least), min(high, most)) for low, high in (BANDS[draws.below(3)] for _ in range(2)))
    return (Thing(size, colour, form, x, y, radius),)


def _single(draws: _SceneRng) -> Scene:
    _, colour, form = _words(draws)
    others = [name for name in COLOURS if name != colour]
    background = COLOURS[others[draws.below(len(others))]]
    radius = draws.number(*_SINGLE)
    x, y = (draws.number(0.5 - _SHIFT, 0.5 + _SHIFT) for _ in range(2))
    return Scene((Thing("large", colour, form, x, y, radius),), background)


def _several(draws: _SceneRng) -> tuple[Thing, ...]:
    size, colour, form = _words(draws)
    radius = draws.number(*RADII[size])
    count = 2 + draws.below(2)

    def apart(tries: Centres) -> NDArray[np.bool_]:
        far = [
            np.abs(tries[:, first] - tries[:, second]).max(axis=-1) >= 2 * radius + GAP
            for first in range(count)
            for second in range(first)
        ]
        return np.logical_and.reduce(far)

    places = draws.places(count, radius, apart)
    return tuple(Thing(size, colour, form, x, y, radius) for x, y in places)


def _two(draws: _SceneRng) -> tuple[Thing, ...]:
    first, second = _words(draws), _words(draws)
    while first[1:] == second[1:]:
        second = _words(draws)
    radii = draws.number(*RADII[first[0]]), draws.number(*RADII[second[0]])
    relation = RELATIONS[draws.below(len(RELATIONS))]
    axis = 0 if relation in ("left of", "right of") else 1

    def related(tries: Centres) -> NDArray[np.bool_]:
        along = tries[:, 1, axis] - tries[:, 0, axis]
        across = np.abs(tries[:, 1, 1 - axis] - tries[:, 0, 1 - axis])
        forward = along if relation in ("left of", "above") else -along
        return (forward >= sum(radii) + GAP) & (across <= forward / 2)

    (x, y), (other_x, other_y) = draws.places(2, max(radii), related)
    return Thing(*first, x, y, radii[0]), Thing(*second, other_x, other_y, radii[1])
