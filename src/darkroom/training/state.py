"""The state folders of trainings, outside the declared outputs, which both engines delete when a stage is killed.

`sample_generator` keeps its finished images in the same way.

`$DVC_ROOT/.darkroom/state/STAGE-KEY/`, or STAGE-ITEM-KEY for a stage that runs once for each of several items. KEY is a
hash of the parameters and the inputs, without `run`: the same work continues where it stopped, even with a smaller
micro-batch, and other work never finds it. The fingerprint of the code lies inside (`training/changed_code.py`).
"""

# No effect on any output: finds the folder of a training's state

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from darkroom.artifacts.atomic import require_writable, write_json
from darkroom.artifacts.manifest import NAME, manifest_hash, sha256_file, sha256_json
from darkroom.dag.fingerprint.following import Sources
from darkroom.dag.fingerprint.stages import OUT, SOURCE, Fingerprint, changes, fingerprints, merged
from darkroom.dag.fingerprint.stages import STAGE as CODE_STAGE
from darkroom.dag.lock_file import lost
from darkroom.dag.records import LOCK as LOCK_FILE
from darkroom.dag.records import recorded, uncached
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import (
    DVC,
    OUTPUTS,
    address,
    differences,
    file_name,
    lookup,
    paths,
    read_yaml,
    scope,
    stage_entry,
    stage_params,
)

FINISHED = "finished.json"
LOCK = "lock"
PARAMETERS = "parameters.json"  # what params.yaml gives to the stage, for trackers
UNTRAINED = "untrained"  # of a generator: the network and the manifest that the weights of its checkpoints belong to
STABLE = "stable.json"  # where a longer training of the same kind finds the checkpoint at the beginning of the decay
CODE = "code.json"  # the fingerprint of the code that runs, for the checkpoints that it writes
# In sections `training`: when the decay begins, and how it ends.
_LENGTH = ("images", "decay_fraction", "final_rate")
STARTED = "DARKROOM_STARTED"  # the key of the work that the runner has begun, in the environment of all its processes
_IGNORED = re.compile(r"\.snakemake_timestamp$|\..*\.tmp-")  # in .dvcignore


def root() -> Path:
    """Return the folder of all states, in the main checkout even for a queued experiment's copy of it."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".darkroom" / "state"


def _content(path: Path) -> Any:
    """Return the hash of a dependency: of a file, of a folder's manifests, or of all its files."""
    if path.is_file():
        return sha256_file(path)
    if manifests := sorted(path.rglob(NAME)):
        return {str(manifest.relative_to(path)): manifest_hash(manifest.parent) for manifest in manifests}
    files = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {str(file.relative_to(path)): sha256_file(file) for file in files}


def key(work: Mapping[str, Any]) -> str:
    """Return the short hash of a training's identity. More or fewer processes continue the same training."""
    return sha256_json({**work, "params": _without(work["params"], ["processes"], None)})[:16]


def lengthless_key(work: Mapping[str, Any]) -> str:
    """Return the short hash of what a training of the schedule `wsd` and a longer one share until the decay starts."""
    return key({**work, "params": _without(work["params"], _LENGTH, "training")})


def stable_root() -> Path:
    """Return the folder of all checkpoints that longer trainings can start from."""
    return root().parent / "stable"


def _without(values: Mapping[str, Any], names: Container[str], section: str | None, parent: str = "") -> dict[str, Any]:
    """Return parameters without some keys, in the sections that are called `section`; None: in all."""
    return {
        name: _without(value, names, section, name) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name not in names or section not in (None, parent)
    }


def identity(stage: str, item: str | None = None, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the identity of a stage's work: its parameters except `run`, and its inputs except its code.

    values: its parameters as they were read; None: read now.
    """
    values = _without_run(stage_params(stage, item) if values is None else values)
    deps = [dep for dep in declared(stage, item, ["deps"]) if not is_code(dep)]
    return {"stage": address(stage, item), "params": values, "deps": {dep: _content(Path(dep)) for dep in deps}}


def declared(stage: str, item: str | None, kinds: Iterable[str]) -> list[str]:
    """Return the paths that dvc.yaml lists for a stage under some kinds, `deps` or OUTPUTS."""
    dvc = read_yaml(DVC)
    return paths(stage_entry(dvc, stage), kinds, scope(read_yaml(PARAMS), dvc, stage, item))


def is_code(dep: str) -> bool:
    """Return whether a dependency is a fingerprint of code."""
    return dep.startswith(f"{OUT}/")


def fingerprint(stage: str, item: str | None = None) -> Fingerprint:
    """Return the fingerprint of the code that a stage runs.

    It is read from `build/code/`, unless a source file is newer or the stage `code` ran with other kinds: to compute it
    takes seconds.
    """
    files = [Path(dep) for dep in declared(stage, item, ["deps"]) if is_code(dep)]
    params, ran = read_yaml(PARAMS), recorded().get(CODE_STAGE, {}).get("params", {}).get(str(PARAMS), {})
    if ran and all(lookup(params, key) == kind for key, kind in ran.items()) and _are_newest(files):
        return merged(json.loads(file.read_text()) for file in files)
    # The code of an artifact depends on all stages that open it.
    stages = [name for name in read_yaml(DVC)["stages"] if name != CODE_STAGE]
    by_name = fingerprints(stages, params, Sources(SOURCE)) if files else {}
    return merged(by_name[str(file.relative_to(OUT).with_suffix(""))] for file in files)


def changed_since(stage: str, item: str | None) -> list[str]:
    """Return what changed in the code of a stage since the stage `code` hashed it; empty if that has not run.

    An engine hashes the code when it starts. A stage that starts hours later could run code that was edited since, and
    be recorded with the earlier code.
    """
    files = [Path(dep) for dep in declared(stage, item, ["deps"]) if is_code(dep)]
    if _are_newest(files) or not all(map(Path.is_file, files)):
        return []
    return changes(merged(json.loads(file.read_text()) for file in files), fingerprint(stage, item))


def _are_newest(files: Sequence[Path]) -> bool:
    """Return whether some files exist, and are newer than every source file."""
    oldest = min((file.lstat().st_mtime if file.is_file() else 0.0 for file in files), default=math.inf)
    sources = (path for path in SOURCE.rglob("*.*") if path.is_file() and path.suffix != ".pyc")
    return all(source.stat().st_mtime < oldest for source in sources)


def read_entry(folder: Path, name: str) -> dict[str, Any]:
    """Return what `open_state` wrote to a state's folder under CODE, PARAMETERS or STABLE; empty if it is missing."""
    path = folder / name
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def open_state(stage: str, item: str | None = None) -> Iterator[Path]:
    """Yield the folder of a stage's state, locked against a second run of the same work.

    Of several processes that share a training, the first holds the lock for all.

    Raises:
        DarkroomError: another process holds it, or params.yaml or an input changed since the runner read it (STARTED).
    """
    work = identity(stage, item)
    folder, name = root() / f"{file_name(stage, item)}-{key(work)}", address(stage, item)
    if os.environ.get(STARTED, key(work)) != key(work):
        raise DarkroomError(f"params.yaml or an input was edited while {name} started: run the same command again.")
    if int(os.environ.get("RANK", 0)):
        yield folder
        return
    require_writable(folder / LOCK)
    with (folder / LOCK).open("a+") as lock:
        os.register_at_fork(after_in_child=lock.close)  # a loader worker that outlives its training holds no lock
        if not _take(lock):
            verb = "trained" if stage.startswith("train_") else "run"
            raise DarkroomError(
                f"{name} is already being {verb} by another process, which holds {folder / LOCK}: wait for it "
                "to end, or stop it."
            )
        write_json(folder / CODE, fingerprint(stage, item))
        write_json(folder / PARAMETERS, stage_params(stage, item))
        stable = stable_root() / f"{file_name(stage, item)}-{lengthless_key(work)}"  # see wsd_checkpoint.py
        write_json(folder / STABLE, {"folder": str(stable)})
        yield folder
        outs = {out: dvc_md5(Path(out)) for out in declared(stage, item, OUTPUTS) if Path(out).exists()}
        write_json(folder / FINISHED, {"stage": name, "outs": outs})


def md5_file(path: Path) -> str:
    """Return the MD5 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def file_hashes(path: Path) -> dict[str, str]:
    """Return the MD5 of each file of an output, by its path inside; the path of an output that is a file is "."."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {file.relative_to(path).as_posix(): md5_file(file) for file in files if not _IGNORED.match(file.name)}


def dvc_md5(path: Path, hashes: Mapping[str, str] | None = None) -> str:
    """Return DVC's hash of an output: the MD5 of a file, or for a folder the MD5 of its list of files."""
    hashes = file_hashes(path) if hashes is None else hashes
    if not path.is_dir():
        return hashes["."]
    listed = [{"md5": hashes[name], "relpath": name} for name in sorted(hashes)]
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest() + ".dir"


def _recorded(stage: str, outs: Mapping[str, str]) -> bool:
    """Return whether dvc.lock records these outputs of a stage, and DVC's cache holds the cached ones."""
    md5s = {out["path"]: out.get("md5") for out in recorded().get(stage, {}).get("outs", [])}
    is_recorded = bool(outs) and all(md5s.get(path) == md5 for path, md5 in outs.items())
    plain = uncached(read_yaml(DVC)) if is_recorded else set()
    return is_recorded and not lost({path: md5 for path, md5 in outs.items() if path not in plain})


def sweep() -> None:
    """Remove the states of finished trainings whose results are in dvc.lock and DVC's cache; every stage calls it.

    Files that cannot be read now, because another stage or DVC is writing them, are left for the next time.
    """
    for marker in root().glob(f"*/{FINISHED}"):
        with contextlib.suppress(OSError, ValueError, AttributeError, KeyError, TypeError, DarkroomError):
            if marker.stat().st_mtime > LOCK_FILE.stat().st_mtime:
                continue
            with (marker.parent / LOCK).open("a+") as handle:
                finished = json.loads(marker.read_text())
                if _take(handle) and _recorded(finished["stage"], finished["outs"]):
                    shutil.rmtree(marker.parent)


# ---------------------------------------------------------------------------------------------------------------------
# Compare the inputs of a stage when it ends, since DVC records those of that time

_SMALL = 1 << 20  # maximum bytes of a file that is compared by content: DVC rewrites such files unchanged
# Files that DVC does not hash:
_UNHASHED = re.compile(r"__pycache__|\.(snakemake(_timestamp)?|git|hg|dvc|venv|darkroom)|.*\.pyc|\..*\.tmp-.*")


class Inputs:
    """The inputs of a stage at its start: `values` of params.yaml, which the caller has read, and its dependencies.

    Raises:
        DarkroomError: dvc.yaml is not valid.
    """

    def __init__(self, stage: str, item: str | None, values: Mapping[str, Any]) -> None:
        self._stage, self._item, self._params = stage, item, _without_run(values)
        self._files = {dep: _content_now(Path(dep)) for dep in declared(stage, item, ["deps"])}

    def require_same(self) -> None:
        """Check that parameters, inputs and code have not changed.

        Raises:
            DarkroomError: they changed, or params.yaml is no longer valid; names the changes.
        """
        changes = list(differences("", self._params, _without_run(stage_params(self._stage, self._item))))
        changes += [f"{path} has changed" for path, state in self._files.items() if _content_now(Path(path)) != state]
        changes += changed_since(self._stage, self._item)
        if changes:
            raise DarkroomError(
                f"inputs of {address(self._stage, self._item)} changed while it ran: {'; '.join(changes[:4])}. The "
                "result is not recorded. Run the same command again, or undo the change first; the checkpoints of a "
                "training are kept in both cases."
            )


def _without_run(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "run"}  # `run` changes no result


def _content_now(path: Path) -> str:
    """Return a hash of a small file's content, or of the name, size and time of change of each file in a folder."""
    if path.is_file() and path.stat().st_size <= _SMALL:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not _UNHASHED.fullmatch(name))
        for file in (Path(folder, name) for name in sorted(names) if not _UNHASHED.fullmatch(name)):
            digest.update(f"{file} {_stat(file)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest() if path.is_dir() else _stat(path)


def _stat(file: Path) -> str:
    with contextlib.suppress(OSError):
        status = file.stat()
        return f"{status.st_size} {status.st_mtime_ns}"
    return "missing"  # removed meanwhile, or a broken link
