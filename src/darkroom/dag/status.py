"""What DVC finds out of date, the code included."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import md5
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.stage import Stage
from networkx import DiGraph, ancestors, descendants

from darkroom.artifacts.atomic import json_bytes
from darkroom.dag.fingerprint.stages import OUT, Fingerprint, fingerprints
from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.hashable import require_hashable
from darkroom.dag.history import events
from darkroom.dag.lock_file import busy
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml, related
from darkroom.terminal.numbers import time_of

RUNNING = "running"  # in place of DVC's status


@dataclass(frozen=True)
class Status:
    """The stages as DVC has them, and what it finds out of date.

    graph: of DVC's stages; an edge points from a stage to one that it needs. Raw data under `dvc add` is a stage
        without a command: what is stale there shows in the stages that read it.
    changed: DVC's status of the stages that are out of date by themselves, by name; [RUNNING] of those that run.
    code: the fingerprints of the source by their paths, where those in build/code are of other code.
    """

    graph: DiGraph
    changed: Mapping[str, Any]
    code: Mapping[str, Fingerprint] = field(default_factory=dict)

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

    def runs(self, name: str) -> str:
        """Return since when a stage runs, as a part of a sentence; "" where it does not."""
        if self.changed.get(name) != [RUNNING]:
            return ""
        last = {event.get("stage"): event for event in events()}.get(name, {})  # its end: DVC stores what it made
        return (
            f"is running since {time_of(time.time() - last['time'])}" if last.get("event") == "start" else "is running"
        )

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
def observe() -> Iterator[Status]:
    """Yield what DVC finds out of date and what runs, without waiting for a lock and without writing in the checkout.

    What a running stage is about to write is left out, and where the source has changed since the stage `code` ran, its
    fingerprints are computed in memory.

    Raises:
        DarkroomError: DVC cannot read the repository, or a folder that a stage reads holds files it cannot hash.
    """
    try:
        # `tmp_dir` is where DVC puts its locks; `_ignore` would write .dvc/.gitignore.
        with (
            TemporaryDirectory(prefix="darkroom-dvc-") as folder,
            type("Reader", (Repo,), {"tmp_dir": folder, "_ignore": lambda repo: None})() as repo,
        ):
            graph, written = repo.index.graph, busy()
            require_hashable(_read_by_stages(graph))
            stages = {stage.addressing: stage for stage in graph}
            code: dict[str, Fingerprint] = {}
            if CODE in stages and _changes(stages[CODE], written, code):
                names = [name for name in STAGES if name != CODE]
                hashed = fingerprints(names, read_yaml(PARAMS), Path("src"))  # of this clone, not of the running code
                code = {f"{OUT}/{name}.json": each for name, each in hashed.items()}
                del stages[CODE]
            found = {name: _changes(stage, written, code) for name, stage in stages.items()}
            yield Status(graph, {name: entries for name, entries in found.items() if entries}, code)
    except DvcException as error:
        raise DarkroomError(f"DVC cannot say what is out of date: {error}") from error


def _changes(stage: Stage, written: Collection[str], code: Mapping[str, Fingerprint]) -> list[Any]:
    """Return the status of a stage as `Stage.status` does under locks, without the paths that are being `written`."""
    if any(related(out.fs_path, path) for out in stage.outs for path in written):
        return [RUNNING]

    def changed(entries: Iterable[Any]) -> Iterator[tuple[str, str]]:
        for entry in entries:
            if (new := code.get(entry.def_path)) is not None:
                if not entry.hash_info or entry.hash_info.value != md5(json_bytes(new)).hexdigest():
                    yield entry.def_path, "modified" if entry.hash_info else "new"
            elif not any(related(entry.fs_path, path) for path in written):
                try:
                    yield from entry.status().items()
                except FileNotFoundError:  # replaced while it was read
                    yield str(entry), "modified"

    deps, outs = dict(() if stage.frozen else changed(stage.deps)), dict(changed(stage.outs))
    found = [{kind: each} for kind, each in (("changed deps", deps), ("changed outs", outs)) if each]
    stage._status_always_changed(found)
    stage._status_stage(found)
    return found


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
        repo.reproduce([CODE], single_item=True)
        repo._reset()  # as DVC does whenever it takes its lock, which the caller may hold already
        found = repo.status()
    return Status(repo.index.graph, found)
