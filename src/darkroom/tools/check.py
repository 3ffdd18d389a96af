"""`darkroom check`: params.yaml, dvc.yaml, dvc.lock and the folders of parts, before anything runs."""

from typing import Annotated

from typer import Option

from darkroom.check.check import check as check_params
from darkroom.check.check import check_sources
from darkroom.dag.lock_file import mend

_ALL = "all"


def check(
    leave_out: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="add to .dvcignore what DVC cannot hash in this folder; all: in the folders of all parts",
        ),
    ] = None,
) -> str:
    """Return a line for the terminal. Raises DarkroomError naming the first fault, or all faults of params.yaml."""
    if mended := mend():
        print(mended)
    checked = check_params(None, True)
    return f"darkroom check: {checked}{check_sources('' if leave_out == _ALL else leave_out)}"
