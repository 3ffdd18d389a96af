"""Ask DVC for the stages of this repository, what is out of date, its cache, remotes and patterns.

Besides `dag/dvc.py` and `dag/rwlock.py` this is the only module that imports DVC, which takes half a second: import it
where it is needed.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import md5
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import dvc.stage
from dvc.exceptions import DvcException, InvalidArgumentError
from dvc.repo import Repo, lock_repo
from dvc.utils.hydra import apply_overrides, get_hydra_sweeps
from dvc.utils.serialize import dump_yaml, load_yaml
from hydra.errors import HydraException

from darkroom.artifacts.atomic import json_bytes
from darkroom.dag.dvc import install
from darkroom.dag.fingerprint.following import Sources
from darkroom.dag.fingerprint.stages import OUT, Fingerprint, fingerprints
from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.hashable import require_hashable
from darkroom.dag.records import BUSY, LOCK, busy
from darkroom.dag.rwlock import edit_rwlock
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml, related

if TYPE_CHECKING:
    from networkx import DiGraph  # importing takes a tenth of a second, more than a status needs

RUNNING = "running"  # in place of DVC's status


class Stage(NamedTuple):
    """The paths that a stage reads and writes, as in dvc.yaml."""

    deps: list[str]
    outs: list[str]


@dataclass(frozen=True)
class Status:
    """The stages as resolved by DVC, and those that are out of date.

    stages: those that have a command, by name: STAGE, or STAGE@ITEM.
    graph: of their names; an edge points from a stage to one that it needs. Raw data under `dvc add` is not a stage:
        the stages that read it become stale.
    changed: DVC's status of the stages that are out of date by themselves, by name; [RUNNING] for those that run.
    lost: the outputs that exist as recorded, but in no cache, by stage, as when a disk was full; without stages that
        are stale for another reason, too.
    code: the fingerprints of the source by their paths, if those in build/code belong to other code.
    """

    stages: Mapping[str, Stage]
    graph: "DiGraph"
    changed: Mapping[str, Any] = field(default_factory=dict)
    lost: Mapping[str, list[str]] = field(default_factory=dict)
    code: Mapping[str, Fingerprint] = field(default_factory=dict)

    @cached_property
    def waiting(self) -> set[str]:
        """The stages below one that is out of date, whose inputs will change."""
        from networkx import ancestors

        return {later for name in self.stages.keys() & self.changed.keys() for later in ancestors(self.graph, name)}

    @property
    def stale(self) -> set[str]:
        """The stages that would run."""
        return self.waiting | (self.stages.keys() & self.changed.keys())

    def runs(self, name: str) -> str:
        """Return a phrase saying that a stage runs; "": it does not."""
        return "is running" if self.changed.get(name) == [RUNNING] else ""

    def needs(self, name: str) -> set[str]:
        """Return the names of all stages above a stage."""
        from networkx import descendants

        return set(descendants(self.graph, name))


@contextmanager
def _reporting(action: str) -> Iterator[None]:
    """Convert DVC's errors to a DarkroomError that names the failed action."""
    try:
        yield
    except DvcException as error:
        raise DarkroomError(f"DVC cannot {action}: {error}") from error


def _open() -> Repo:
    """Return the repository of the working folder; it waits for the lock of the repository."""
    install()
    return Repo(_wait_for_lock=True)


def _status(repo: Repo, changed: Mapping[str, Any], code: Mapping[str, Fingerprint] | None = None) -> Status:
    from networkx import DiGraph

    stages = {stage.addressing: stage for stage in repo.index.graph if stage.cmd}
    lost = {
        name: outs
        for name, stage in stages.items()
        if name in changed and _as_recorded(stage)
        if (outs := [out.def_path for out in stage.outs if out.use_cache and out.changed_cache()])
    }
    graph = DiGraph()
    graph.add_nodes_from(stages)
    graph.add_edges_from((a.addressing, b.addressing) for a, b in repo.index.graph.edges if a.cmd and b.cmd)
    plain = {
        name: Stage([dep.def_path for dep in stage.deps], [out.def_path for out in stage.outs])
        for name, stage in stages.items()
    }
    return Status(plain, graph, changed, lost, code or {})


def _read_by_stages(graph: "DiGraph") -> dict[Path, str]:
    """Return the local files and folders that stages read and none writes, with the first stage that reads each."""
    outs = [out.fs_path for stage in graph for out in stage.outs]
    readers: dict[Path, str] = {}
    for stage in graph:
        for dep in stage.deps:
            if dep.protocol == "local" and not any(related(dep.fs_path, out) for out in outs):
                readers.setdefault(Path(dep.fs_path), stage.addressing)
    return readers


def observe() -> Status:
    """Return what is out of date and what runs, without waiting for a lock or writing to the checkout.

    Outputs that a running stage is writing are left out, and if the source has changed since the stage `code` ran, its
    fingerprints are computed in memory.

    Raises:
        DarkroomError: DVC cannot read the repository, or a folder that a stage reads holds files it cannot hash.
    """
    install()
    # `tmp_dir` is where DVC puts its locks; `_ignore` would write .dvc/.gitignore.
    with (
        _reporting("determine what is out of date"),
        TemporaryDirectory(prefix="darkroom-dvc-") as folder,
        type("Reader", (Repo,), {"tmp_dir": folder, "_ignore": lambda repo: None})() as repo,
    ):
        graph, written = repo.index.graph, busy()
        require_hashable(_read_by_stages(graph))
        stages = {stage.addressing: stage for stage in graph}
        code: dict[str, Fingerprint] = {}
        if CODE in stages and _changes(stages[CODE], written, code):
            names = [name for name in STAGES if name != CODE]
            hashed = fingerprints(names, read_yaml(PARAMS), Sources(Path("src")))  # not of the running code
            code = {f"{OUT}/{name}.json": each for name, each in hashed.items()}
            del stages[CODE]
        status = {name: _changes(stage, written, code) for name, stage in stages.items()}
        return _status(repo, {name: entries for name, entries in status.items() if entries}, code)


def _changes(stage: dvc.stage.Stage, written: Collection[str], code: Mapping[str, Fingerprint]) -> list[Any]:
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
    status = [{kind: each} for kind, each in (("changed deps", deps), ("changed outs", outs)) if each]
    stage._status_always_changed(status)
    stage._status_stage(status)
    return status


def read_status(ask: bool = True) -> Status:
    """Return what is out of date, under DVC's locks. If the source changed, the stage `code` runs first.

    Without `ask` it only returns the stages, all as if up to date.

    Raises:
        DarkroomError: a folder that a stage reads holds files that DVC cannot hash (the message lists them), DVC cannot
            read the repository, or the source is not valid Python.
    """
    # Held throughout, since a plain `dvc` writes dvc.lock in place under this lock.
    with _reporting("determine what is out of date"), _open() as repo, lock_repo(repo):
        if not ask:
            return _status(repo, {})
        require_hashable(_read_by_stages(repo.index.graph))
        status: Mapping[str, Any] = repo.status()
        if CODE in status:
            repo.reproduce([CODE], single_item=True)
            repo._reset()  # as DVC does when it takes its lock, which is already held here
            status = repo.status()
        return _status(repo, status)


def _as_recorded(stage: dvc.stage.Stage) -> bool:
    """Return whether command, dependencies and outputs of a stage equal those in dvc.lock: then a commit is safe."""
    with suppress(FileNotFoundError):  # replaced while it was read
        return not stage.changed_stage() and not any(path.workspace_status() for path in (*stage.deps, *stage.outs))
    return False


def as_recorded(names: Collection[str]) -> list[str]:
    """Return the entries of dvc.lock that are current stages and up to date; none where DVC cannot read them."""
    with suppress(DvcException), Repo() as repo:
        stages = {stage.addressing: stage for stage in repo.index.stages}
        return [name for name in names if name in stages and _as_recorded(stages[name])]
    return []


@contextmanager
def mended() -> Iterator[None]:
    """Hold the lock under which DVC writes dvc.lock, after removing what ended processes left in `rwlock`.

    Raises:
        DarkroomError: the lock is not available.
    """
    with _reporting(f"lock {LOCK} and {BUSY} to repair them"), _open() as repo, repo.lock:
        with edit_rwlock(str(BUSY.parent)):
            pass  # entering removes them
        yield


def cache_folder() -> Path:
    """Return the folder of DVC's objects.

    Raises:
        DarkroomError: DVC cannot read its settings here.
    """
    with _reporting("read its settings here"), Repo() as repo:
        return Path(str(repo.cache.local.path))


def remotes() -> dict[str, tuple[bool, bool]]:
    """Return for each remote whether DVC verifies what it downloads from it, and whether git holds its settings.

    Raises:
        DarkroomError: DVC cannot read its settings here.
    """
    with _reporting("read its settings here"), Repo() as repo:
        shared = repo.config.load_config_to_level("local").get("remote", {})
        return {name: (bool(values.get("verify")), name in shared) for name, values in repo.config["remote"].items()}


def combinations(overrides: Sequence[str]) -> list[list[str]]:
    """Return each combination of the values of overrides, in Hydra's grammar, as for `dvc exp run --set-param`.

    Raises:
        DarkroomError: an override cannot be read.
    """
    try:
        return [list(sweep[str(PARAMS)]) for sweep in get_hydra_sweeps({str(PARAMS): list(overrides)})]
    except (HydraException, InvalidArgumentError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise DarkroomError(f"-S {' -S '.join(overrides)}: {reason}: write KEY=A,B or KEY=range(A,B,STEP).") from error


def override(path: Path, overrides: Sequence[str]) -> None:
    """Change values in a file of parameters, as `dvc exp run --set-param` does.

    Raises:
        DarkroomError: a key is missing from the file, and not added by `++`.
    """
    try:
        apply_overrides(str(path), list(overrides))
    except DvcException as error:
        reason = str(error.__cause__ or error).partition("\n")[0].rstrip(".")
        raise DarkroomError(
            f"{' '.join(overrides)}: {reason}. Is it misspelt? `++KEY=VALUE` adds one that {PARAMS} lacks."
        ) from error


def lock_seconds(path: Path = LOCK) -> float:
    """Return the seconds to write a copy of dvc.lock, as DVC does after each stage."""
    if not path.is_file():
        return 0.0
    lock = load_yaml(path)
    with TemporaryDirectory(prefix="darkroom-plan-") as folder:
        began = time.process_time()
        dump_yaml(str(Path(folder) / path.name), lock)
        return time.process_time() - began
