"""Reads the curves of a training: DVCLive's tables, one a quantity, with the images seen as the step."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError

TABLES = Path("plots/metrics")


@dataclass(frozen=True)
class Curve:
    """Points (images seen, value) in the order of the file, and how many values were left out: not finite."""

    points: tuple[tuple[float, float], ...] = ()
    left_out: int = 0


def read_curve(folder: Path, name: str) -> Curve:
    """Return a curve of the training that wrote `folder`; without a point where the quantity was never logged.

    Raises:
        ArtifactError: the folder is missing, or the table is not one of numbers; names file and line.
    """
    if not folder.is_dir():
        raise ArtifactError(f"{folder} is missing: run the stage that makes it (`dvc repro`).")
    path = folder / TABLES / f"{name}.tsv"
    if not path.exists():  # DVCLive makes the file with its first point
        return Curve()
    column = name.rpartition("/")[2]
    points: list[tuple[float, float]] = []
    left_out = 0
    try:
        with path.open(newline="") as file:
            for line, row in enumerate(csv.DictReader(file, delimiter="\t"), start=2):
                try:
                    images, value = float(row["step"]), float(row[column])
                except (KeyError, TypeError, ValueError) as error:
                    raise ArtifactError(
                        f"{path}, line {line}, does not hold the numbers `step` and `{column}`: run the training again."
                    ) from error
                if math.isfinite(value):
                    points.append((images, value))
                else:
                    left_out += 1
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path} is not text: restore it with `dvc checkout {folder}`.") from error
    return Curve(tuple(points), left_out)
