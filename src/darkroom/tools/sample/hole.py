"""The part of an image that `darkroom sample --inpaint` fills."""

import re
from pathlib import Path
from typing import NamedTuple

from darkroom.errors import DarkroomError


class Hole(NamedTuple):
    """A rectangle of an image file that is filled, or everything outside of it.

    box: left, top, right and bottom, in pixels of the prepared image.
    """

    file: Path
    box: tuple[int, int, int, int]
    outside: bool = False


def hole_of(file: Path | None, box: str | None, outside: bool) -> Hole | None:
    """Return the rectangle of an image that is filled, or None. Raises DarkroomError: an option is missing or wrong."""
    if file is None:
        if box is not None or outside:
            raise DarkroomError("--box and --outside need an image: add --inpaint FILE.png.")
        return None
    edges = re.fullmatch(r"(\d+),(\d+),(\d+),(\d+)", box or "")
    if edges is None:
        raise DarkroomError("--inpaint needs --box LEFT,TOP,RIGHT,BOTTOM in pixels, for example --box 8,8,24,24.")
    left, top, right, bottom = map(int, edges.groups())
    return Hole(file, (left, top, right, bottom), outside)
