"""The points of a sweep: overrides of params.yaml with several values each, or the rows of a table."""

import math
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from darkroom.dag.repo import combinations
from darkroom.errors import DarkroomError

Point = list[str]  # overrides, as `dvc exp run --set-param` takes them
_LOG = re.compile(r"=log\(([^,()]+),([^,()]+),([^,()]+)\)$")
_MOST = 10_000  # points


def points(overrides: Sequence[str], file: Path | None, count: int | None) -> list[Point]:
    """Return the points: each row of a table, if there is one, with all combinations of the values of overrides.

    An override is KEY=A,B, KEY=range(1,9,2) or KEY=log(1e-4,1e-2,5), in Hydra's grammar, as for `dvc exp run`;
    `++KEY=…` adds a key that is not in params.yaml. `count`: draw so many of the points, always the same ones.

    Raises:
        DarkroomError: an override or the table cannot be read, or the points are too many.
    """
    axes = [combinations([_LOG.sub(_spaced, override)]) for override in overrides]
    axes = [rows_of(file), *axes] if file else axes
    total = math.prod(map(len, axes))
    if not total:
        raise DarkroomError(f"-S {' -S '.join(overrides)} has no points: a range excludes its end.")
    if min(total, count or total) > _MOST:
        raise DarkroomError(f"these are {total:,} points; at most {_MOST:,} are possible: draw some with --random N.")
    numbers: Sequence[int] = range(total)
    if count is not None and count < total:
        numbers = random.Random(0).sample(numbers, count)
    drawn = []
    for number in numbers:
        point: Point = []
        for axis in reversed(axes):
            number, at = divmod(number, len(axis))
            point = axis[at] + point
        drawn.append(point)
    return [list(point) for point in dict.fromkeys(map(tuple, drawn))]


def _spaced(match: re.Match[str]) -> str:
    """Return the values of log(START, STOP, COUNT), with three significant digits."""
    try:
        start, stop, count = float(match[1]), float(match[2]), int(match[3])
        if min(start, stop) <= 0 or count < 2:
            raise ValueError
    except ValueError:
        raise DarkroomError(f"{match[0][1:]}: write log(START,STOP,COUNT), both above 0 and at least two.") from None
    values = [start * (stop / start) ** (at / (count - 1)) for at in range(count)]
    return "=" + ",".join(f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in values)


def rows_of(path: Path) -> list[Point]:
    """Return the rows of a CSV file whose columns are keys of params.yaml; an empty cell overrides nothing.

    Raises:
        DarkroomError: it is missing or empty.
    """
    try:
        table = pd.read_csv(path, dtype=str, skipinitialspace=True, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise DarkroomError(f"{path}: {error}. Its first line must name keys of params.yaml.") from error
    rows = [[f"{key}={value}" for key, value in row.items() if value] for _, row in table.iterrows()]
    if not rows:
        raise DarkroomError(f"{path} has no rows.")
    return rows
