"""What DVC finds out of date, the code included."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from dvc.repo import Repo

from darkroom.dag.fingerprint.stages import STAGE as CODE


def status(repo: Repo) -> Mapping[str, Any]:
    """Return DVC's status of the stages that are out of date, by their names.

    What it says depends on the fingerprints of code. Where the source changed, the stage `code` runs first, and what
    was asked of `repo` before is out of date: ask for the graph afterwards.

    Raises:
        DvcException: DVC cannot read the repository, or the source is not valid Python.
    """
    found: Mapping[str, Any] = repo.status()
    if CODE in found:
        with redirect_stdout(sys.stderr):  # what the caller prints may be a table or a graph
            repo.reproduce([CODE], single_item=True)
        repo._reset()  # as DVC does whenever it takes its lock, which the caller may hold already
        found = repo.status()
    return found
