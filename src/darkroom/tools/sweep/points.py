"""The points of a sweep: overrides of params.yaml with several values each, or the rows of a table."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from darkroom.dag.repo import combinations
from darkroom.errors import DarkroomError

Point = list[str]  # overrides, as `dvc exp run --set-param` takes them
_LOG = re.compile(r"=log\(([^,()]+),([^,()]+),([^,()]+)\)$")


def _spaced(match: re.Match[str]) -> str:
    """Return the values of log(START, STOP, COUNT), with three significant digits."""
    try:
        start, stop, count = float(match[1]), float(match[2]), int(match[3])
        steps = [math.log(stop / start) * at / (count - 1) for at in range(count)]
    except (ValueError, ZeroDivisionError) as error:
        raise DarkroomError(f"{match[0][1:]}: write log(START,STOP,COUNT), both above 0 and at least two.") from error
    return "=" + ",".join(f"{start * math.exp(step):.3g}" for step in steps)


def grid(overrides: Sequence[str]) -> list[Point]:
    """Return all combinations of the values of overrides: KEY=A,B, KEY=range(1,9,2) or KEY=log(1e-4,1e-2,5).

    The grammar is Hydra's, as for `dvc exp run`: `++KEY=…` for a key that is not in params.yaml.

    Raises:
        DarkroomError: an override cannot be read.
    """
    return combinations([_LOG.sub(_spaced, each) for each in overrides])


def table(path: Path) -> list[Point]:
    """Return the rows of a CSV file whose columns are keys of params.yaml; an empty cell overrides nothing.

    Raises:
        DarkroomError: it is missing or empty.
    """
    try:
        rows = pd.read_csv(path, dtype=str, skipinitialspace=True)
    except (OSError, ValueError) as error:
        raise DarkroomError(f"{path}: {error}. Its first line must name keys of params.yaml.") from error
    points = [[f"{key}={value}" for key, value in row.items() if isinstance(value, str)] for _, row in rows.iterrows()]
    if not points:
        raise DarkroomError(f"{path} has no rows.")
    return points
