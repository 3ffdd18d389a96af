"""DVC with fixes for several processes in one checkout, and for processes that a signal ends.

`python -m darkroom.dag.dvc …` is `dvc …`. `workflow/setup` makes it the `dvc` of `.venv`; Snakemake's rules and
Darkroom's commands use it, too. Files and their formats are DVC's own, so a plain `dvc` works as usual.

1. `dvc.lock`, `rwlock` and other YAML files are written to a temporary file and renamed: no signal truncates them.
   Of `dvc.lock` only the entry of the stage is written.
2. A stage whose files another process works on waits instead of failing; so does a second `dvc repro` or Snakemake.
3. `rwlock` works across nodes and after a signal ended a process, see `darkroom.dag.rwlock`.
4. A stage is not recorded if a parameter or an input changed while its command ran.
5. An empty folder of the run cache, which a SIGKILL can leave, means "not cached".
6. Objects that come from a remote are verified.
7. The bodies of stages are started by parents that have imported their libraries, see `darkroom.dag.parents`.
"""

import fcntl
import io
import logging
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache, wraps
from hashlib import md5
from pathlib import Path
from typing import Any

import dvc.stage
from dvc.cli import main as run_dvc
from dvc.data_cloud import Remote
from dvc.dvcfile import Lockfile
from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.lock import LockError
from dvc.repo import Repo
from dvc.stage import Stage
from dvc.stage import cache as run_cache
from dvc.stage import run as stage_run
from dvc.stage.exceptions import StageCmdFailedError
from dvc.stage.loader import StageLoader
from dvc.stage.serialize import to_lockfile
from dvc.utils.serialize import _common, _yaml
from dvc_data.hashfile.tree import Tree
from dvc_objects.errors import ObjectFormatError

from darkroom.artifacts.atomic import require_writable, write_bytes
from darkroom.dag import parents, rwlock
from darkroom.dag.records import TURN, holder_file, holders, replace_entries
from darkroom.dag.rwlock import LOCKED, edit_rwlock
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.stage import stage_params, threads
from darkroom.params.yaml_text import parse_plain

_POLL = 0.5  # seconds between two checks for another process
_RUN = "DARKROOM_RUN"  # the run of an engine that has the turn, in the environment of all its processes
_ASIDE = {"--dry", "--queue", "--temp", "-h", "--help"}  # arguments of a command that runs no stage in this checkout
_BODY = "PYTHONPATH=src python -m darkroom "  # what the command of a stage begins with
_requested: list[str] = []  # stages with networks that this process has run, if it is the engine


def _dump_data(path: Any, data: Any, dumper: Callable[..., Any], fs: Any = None, **options: Any) -> None:
    """Write data to a temporary file next to `path`, and rename it."""
    text = io.StringIO()
    dumper(data, text, **options)
    write_bytes(Path(os.path.realpath(path)), text.getvalue().encode())


def _in_place(dump_stages: Callable[..., None]) -> Callable[..., None]:
    """Write only the entries of the stages: DVC parses and writes all of dvc.lock, half of the CPU time of a job."""

    @wraps(dump_stages)
    def dump(file: Lockfile, stages: Collection[Stage], **options: Any) -> None:
        texts = {each.name: _yaml.dumps_yaml({"stages": to_lockfile(each, **options)}) for each in stages}
        new = {name: text.partition("\n")[2] for name, text in texts.items()}
        path = Path(os.path.realpath(file.path))
        before = ""
        with suppress(FileNotFoundError, UnicodeDecodeError):  # DVC's own function says what is wrong
            before = path.read_text(encoding="utf-8")
        if (after := replace_entries(before, new)) is None:
            dump_stages(file, stages, **options)
        elif after != before:
            logging.getLogger(Lockfile.__module__).info("Updating lock file '%s'", file.relpath)
            write_bytes(path, after.encode())
            file.repo.scm_context.track_file(file.relpath)

    return dump


def _patient(reproduce: Callable[..., Any]) -> Callable[..., Any]:
    """Let a stage wait, without the lock of the repository, while another process works on its files."""

    @wraps(reproduce)
    def wait(stage: Stage, *args: Any, **options: Any) -> Any:
        waited = False
        while True:
            try:
                return reproduce(stage, *args, **options)
            except LockError as error:
                busy, _, advice = str(error).partition("\n\nIf there are no processes with such PIDs")
                if not advice:
                    raise
                if not waited:
                    print(f"{stage.addressing} waits: {busy}", file=sys.stderr, flush=True)
            waited = True
            stage.repo.lock.unlock()
            try:
                time.sleep(_POLL)
            finally:
                stage.repo.lock.lock()
            recorded = stage.dvcfile._lockfile.load().get("stages", {})  # maybe by the process that was waited for
            StageLoader.fill_from_lock(stage, recorded.get(stage.addressing))

    return wait


def _noted(run_stage: Callable[..., None]) -> Callable[..., None]:
    """Let a stage store the hashes of its parameters and inputs from before its command ran."""

    @wraps(run_stage)
    def run(stage: Stage, dry: bool = False, force: bool = False, **options: Any) -> None:
        if force and not dry:
            stage.save_deps()  # else DVC has done so
        run_stage(stage, dry, force, **options)
        stage.noted_hashes = {str(dep): dep.hash_info for dep in stage.deps}

    return run


def _unchanged(save_outs: Callable[..., None]) -> Callable[..., None]:
    """Refuse to record a stage if its parameters or inputs changed while its command ran.

    DVC calls this when it has hashed the inputs again, and before it records anything.
    """

    @wraps(save_outs)
    def save(stage: Stage, *args: Any, **options: Any) -> None:
        noted = getattr(stage, "noted_hashes", {})
        changed = [str(dep) for dep in stage.deps if noted.get(str(dep), dep.hash_info) != dep.hash_info]
        if changed:
            raise DvcException(
                f"{', '.join(changed)} changed while {stage.addressing} ran, so its result is not recorded. Run the "
                "same command again."
            )
        save_outs(stage, *args, **options)

    return save


def _without_empty(load: Callable[..., Any]) -> Callable[..., Any]:
    """Remove an empty folder of a stage in the run cache: DVC would look for the newest of no files."""

    @wraps(load)
    def look(runs: run_cache.StageCache, stage: Stage) -> Any:
        with suppress(OSError):  # not empty, or not there
            Path(runs._get_cache_dir(run_cache._get_stage_hash(stage))).rmdir()
        return load(runs, stage)

    return look


def _verified(initialize: Callable[..., None]) -> Callable[..., None]:
    """Let a remote compare the hash of each object that it sends, as its setting `verify` does."""

    @wraps(initialize)
    def start(remote: Remote, *args: Any, **config: Any) -> None:
        initialize(remote, *args, **{**config, "verify": True})

    return start


def _compared(load: Callable[..., Tree]) -> Any:
    """Compare the list of a folder's files with its hash, as DVC does with the files."""

    def look(kind: type[Tree], odb: Any, hash_info: Any, *args: Any, **options: Any) -> Tree:
        tree = load(kind, odb, hash_info, *args, **options)
        if hash_info.name == "md5" and f"{md5(tree.fs.cat_file(tree.path)).hexdigest()}.dir" != hash_info.value:
            raise ObjectFormatError(f"{tree.path} is corrupted")
        return tree

    return classmethod(look)


def _by_parent(run: Callable[..., None]) -> Callable[..., None]:
    """Request the body of a stage from a parent; if there is none, start it as DVC does."""

    @wraps(run)
    def start(executable: Any, command: str, **options: Any) -> None:
        main = threading.current_thread() is threading.main_thread()  # Python sets handlers nowhere else
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None  # as DVC does: the body gets it, too
        try:
            status = _ask(command, options["env"])
        finally:
            if main:
                signal.signal(signal.SIGINT, before)
        if status is None:
            run(executable, command, **options)
        elif status:
            raise StageCmdFailedError(command, status if status > 0 else 128 - status)

    return start


def _ask(command: str, environment: Mapping[str, str]) -> int | None:
    """Request the body of a stage from a parent; return its exit status, or None if DVC must start it."""
    stage, _, item = environment["DVC_STAGE"].partition("@")
    if not command.startswith(_BODY) or stage not in STAGES:
        return None
    try:
        values = stage_params(stage, item or None)
        count = threads(values.get(stage, {}))
    except (DarkroomError, KeyError, ValueError, OSError):  # the body says what is wrong
        return None
    kind = parents.NETWORKS if STAGES[stage].networks else parents.LIGHT
    if parents.NAME not in os.environ or _requested:  # this process is the engine
        if kind == parents.LIGHT:
            return None
        _requested.append(stage)
        if len(_requested) == 2:  # loading the libraries pays from the second on
            parents.start([kind])
    words = ["darkroom", *shlex.split(command.removeprefix(_BODY))]
    return parents.ask(kind, words, {**environment, "PYTHONPATH": "src"}, count)


def _parsed_once(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Patch `parse_yaml`, which DVC calls for params.yaml once per stage."""

    def parse_yaml(text: str, path: Any, typ: str = "safe") -> Any:
        if typ == "safe":
            with suppress(Exception):  # DVC's own call raises it, too
                return parse_plain(text) or {}
        return parse(text, path, typ)

    return parse_yaml


@cache  # once a process
def install() -> None:
    """Replace the functions of DVC that this module fixes."""
    rwlock.install()
    _common._dump_data = _yaml._dump_data = _dump_data
    Lockfile.dump_stages = _in_place(Lockfile.dump_stages)
    _yaml.parse_yaml = _parsed_once(_yaml.parse_yaml)
    stage_run._run = _by_parent(stage_run._run)
    dvc.stage.run_stage = _noted(dvc.stage.run_stage)
    Stage.reproduce = _patient(Stage.reproduce)
    Stage.save_outs = _unchanged(Stage.save_outs)
    run_cache.StageCache._load = _without_empty(run_cache.StageCache._load)
    Remote.__init__ = _verified(Remote.__init__)
    Tree.load = _compared(Tree.load.__func__)  # type: ignore[attr-defined, method-assign]


def take_turn(command: str) -> None:
    """Wait until no other engine runs stages in this checkout, and keep others waiting until this process ends.

    Snakemake removes the outputs of a stage before it runs it, so two engines must not work side by side. A plain `dvc`
    takes no turn, so this also waits for the processes that `rwlock` lists.

    Raises:
        DarkroomError: the checkout is not writable.
    """
    require_writable(TURN)
    file = TURN.open("a+")
    LOCKED.append(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        print(f"{command} waits for {file.read() or 'another engine'}.", file=sys.stderr, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    file.truncate(0)
    file.write(f"{command} (PID {os.getpid()})")
    file.flush()
    before: list[str] = []
    while others := _others():
        if others != before:
            advice = f"; remove {TURN.parent}/rwlock if none of them is DVC" if any(map(str.isdigit, others)) else ""
            print(f"{command} waits for PID {', '.join(others)}{advice}.", file=sys.stderr, flush=True)
        before = others
        time.sleep(_POLL)


def _others() -> list[str]:
    """Return the other running processes that `rwlock` lists: PID, and the host if it is known."""
    with edit_rwlock(str(TURN.parent)) as lock:
        entries = holders(lock)
    names = set()
    for entry in entries:
        if file := holder_file(entry):
            host, pid, _ = file.name.rsplit("-", 2)
            names.add(f"{pid} on {host}")
        elif entry["pid"] != os.getpid():
            names.add(str(entry["pid"]))
    return sorted(names)


def main() -> int:
    """Run DVC with the arguments of the command line."""
    install()
    words = sys.argv[1:]
    sys.argv[0] = "dvc"
    command = [word for word in words if not word.startswith("-")][:2]
    if command[:1] == ["repro"] or command in (["exp", "run"], ["experiments", "run"]):
        if TURN.parents[1].is_dir() and not _ASIDE & set(words) and _RUN not in os.environ:
            os.environ[_RUN] = f"{os.getpid()} {time.time():.0f}"
            try:
                take_turn(" ".join(sys.argv))
            except DarkroomError as error:
                print(f"ERROR: {error}", file=sys.stderr)
                return 1
            except KeyboardInterrupt:
                return 130
        words = ["--wait-for-lock", *words]
    return int(run_dvc(words) or 0)


def ignored(paths: Collection[str]) -> set[str]:
    """Return the absolute paths that .dvcignore excludes; none outside of a repository."""
    with suppress(NotDvcRepoError), Repo() as repo:
        rules = repo.dvcignore
        return {path for path in paths if rules.is_ignored_file(path) or rules.is_ignored_dir(path)}
    return set()


if __name__ == "__main__":
    sys.exit(main())
