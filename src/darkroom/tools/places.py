"""Check where a command may write: in a writable folder outside the outputs of stages, which DVC hashes."""

import os
from pathlib import Path

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, OUTPUTS, address, items, paths, read_yaml, related, scope, stage_entry


def require_picture(option: str, target: Path) -> None:
    """Check that a path is of a PNG. Raises DarkroomError, also as `require_no_output` does."""
    if target.suffix.lower() != ".png" or target.is_dir():
        raise DarkroomError(f"{option}: the grid is a PNG, so name a file that ends in .png.")
    require_no_output(option, target)


def require_no_output(option: str, target: Path) -> None:
    """Check that a path can be written, lies in no output of a stage, and no output in it. Outside a clone: the first.

    Raises:
        DarkroomError: a stage writes there, or the folder is not writable; names it.
    """
    above = next(folder for folder in target.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise DarkroomError(f"{option}: {above} is not a writable folder: choose another path, for example in logs/.")
    if not DVC.is_file():
        return
    here = os.path.relpath(target.resolve(), Path.cwd().resolve())
    for made, stage in outputs().items():
        if related(here, made):
            raise DarkroomError(
                f"{option} lies in {made}, which the stage {stage} writes: name another place, say logs/."
            )


def outputs() -> dict[str, str]:
    """Return the outputs of all stages, and the stage that writes each."""
    values, dvc = read_yaml(PARAMS), read_yaml(DVC)
    return {
        path: address(stage, item)
        for stage in dvc["stages"]
        for item in items(values, dvc, stage)
        for path in paths(stage_entry(dvc, stage), OUTPUTS, scope(values, dvc, stage, item))
    }
