"""What DVC finds out of date, the code included."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dvc.repo import Repo
from dvc.stage import Stage
from networkx import DiGraph, ancestors, descendants

from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.hashable import require_hashable
from darkroom.params.stage import related


@dataclass(frozen=True)
class Status:
    """The stages as DVC has them, and what it finds out of date.

    graph: of DVC's stages; an edge points from a stage to one that it needs. Raw data under `dvc add` is a stage
        without a command: what is stale there shows in the stages that read it.
    changed: DVC's status of the stages that are out of date by themselves, by name.
    """

    graph: DiGraph
    changed: Mapping[str, Any]

    @cached_property
    def stages(self) -> dict[str, Stage]:
        """The stages that have a command, by name: STAGE, or STAGE@ITEM."""
        return {stage.addressing: stage for stage in self.graph if stage.cmd}

    @cached_property
    def waiting(self) -> set[str]:
        """The stages below one that is out of date: they read what will change."""
        changed = [stage for name, stage in self.stages.items() if name in self.changed]
        return {later.addressing for stage in changed for later in ancestors(self.graph, stage)}

    @property
    def stale(self) -> set[str]:
        """The stages that would run."""
        return self.waiting | (self.stages.keys() & self.changed.keys())

    def needs(self, name: str) -> set[str]:
        """Return the names of all stages with a command above a stage."""
        return {stage.addressing for stage in descendants(self.graph, self.stages[name])} & self.stages.keys()


def _read_by_stages(graph: DiGraph) -> dict[Path, str]:
    """Return the local files and folders that stages read and none makes, with the first stage that reads each."""
    made = [out.fs_path for stage in graph for out in stage.outs]
    found: dict[Path, str] = {}
    for stage in graph:
        for dep in stage.deps:
            if dep.protocol == "local" and not any(related(dep.fs_path, out) for out in made):
                found.setdefault(Path(dep.fs_path), stage.addressing)
    return found


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send to stderr what this process and those that it starts print: the caller's stdout may be a table or JSON."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def read_status(repo: Repo) -> Status:
    """Return what DVC finds out of date.

    It depends on the fingerprints of code. Where the source changed, the stage `code` runs first.

    Raises:
        DarkroomError: a folder that a stage reads holds files that DVC cannot hash; lists them.
        DvcException: DVC cannot read the repository, or the source is not valid Python.
    """
    require_hashable(_read_by_stages(repo.index.graph))
    found: Mapping[str, Any] = repo.status()
    if CODE in found:
        with _stdout_to_stderr():
            repo.reproduce([CODE], single_item=True)
        repo._reset()  # as DVC does whenever it takes its lock, which the caller may hold already
        found = repo.status()
    return Status(repo.index.graph, found)
