"""`darkroom check`: validate params.yaml, dvc.yaml, dvc.lock and the folders of parts before a run."""

from darkroom.check.check import check as check_params
from darkroom.check.check import check_sources
from darkroom.dag.lock_file import mend
from darkroom.tools import command


@command("Train", "check", "Validate params.yaml, dvc.yaml and data folders, and repair dvc.lock.")
def check() -> str:
    """Return a line for the terminal. Raises DarkroomError with the first error, or all errors in params.yaml."""
    if mended := mend():
        print(mended)
    return f"darkroom check: {check_params(None, True)}{check_sources()}"
