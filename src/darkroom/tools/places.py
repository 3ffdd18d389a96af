"""Check that a command writes to a writable folder outside the outputs of stages, which DVC hashes."""

import os
from collections.abc import Iterable
from pathlib import Path

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, OUTPUTS, address, items, paths, read_yaml, related, scope, stage_entry


def require_picture(option: str, target: Path) -> None:
    """Check that a path ends in .png and can be written. Raises DarkroomError; see also `require_no_output`."""
    if target.suffix.lower() != ".png" or target.is_dir():
        raise DarkroomError(f"{option}: the grid is a PNG file, so use a name that ends in .png.")
    require_no_output(option, target)


def require_no_output(option: str, target: Path) -> None:
    """Check that a path is writable and, in a clone, neither inside an output of a stage nor a parent of one.

    Raises:
        DarkroomError: a stage writes there, or the folder is not writable; the message names it.
    """
    above = next(folder for folder in target.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise DarkroomError(f"{option}: {above} is not a writable folder: choose another path, for example in logs/.")
    if not DVC.is_file():
        return
    here = os.path.relpath(target.resolve(), Path.cwd().resolve())
    for out, stage in declared(OUTPUTS).items():
        if related(here, out):
            raise DarkroomError(
                f"{option} overlaps {out}, which the stage {stage} writes: choose another path, for example in logs/."
            )


def declared(kinds: Iterable[str], folder: Path = Path()) -> dict[str, str]:
    """Return the paths of these kinds, outputs or `deps`, of all stages of a clone, and the stage of each."""
    values, dvc = read_yaml(folder / PARAMS), read_yaml(folder / DVC)
    return {
        path: address(stage, item)
        for stage in dvc["stages"]
        for item in items(values, dvc, stage)
        for path in paths(stage_entry(dvc, stage), kinds, scope(values, dvc, stage, item))
    }
