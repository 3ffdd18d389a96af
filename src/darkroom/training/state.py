"""Where a training keeps its state: outside the declared outputs, which both engines delete when a stage is killed.

`$DVC_ROOT/.darkroom/state/STAGE-KEY/`, where KEY is a hash of the parameters, the inputs and the code, and not of
`run`: the same work continues where it stopped, also with a smaller micro-batch, and other work never finds it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from darkroom.artifacts.atomic import require_writable, write_json
from darkroom.artifacts.hashing import sha256_file, sha256_json
from darkroom.artifacts.manifest import NAME, manifest_hash
from darkroom.errors import DarkroomError
from darkroom.params import DVC, PARAMS, given, lookup, paths, read_yaml, scope, stage_entry

FINISHED = "finished.json"
LOCK = "lock"


def root() -> Path:
    """Return the folder of all states: in the main checkout, also from a queued experiment's copy of it."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".darkroom" / "state"


def _content(path: Path) -> Any:
    """Return what stands for a dependency: the hash of a file, or of a folder's manifests, or of all its files."""
    if path.is_file():
        return sha256_file(path)
    manifests = sorted(path.rglob(NAME))
    if manifests:
        return {str(found.relative_to(path)): manifest_hash(found.parent) for found in manifests}
    files = sorted(found for found in path.rglob("*") if found.is_file() and "__pycache__" not in found.parts)
    return {str(found.relative_to(path)): sha256_file(found) for found in files}


def key(who: Mapping[str, Any]) -> str:
    """Return the short hash of a training's identity. More or fewer processes continue the same training."""
    return sha256_json({**who, "params": _without_processes(who["params"])})[:16]


def _without_processes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_processes(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name != "processes"
    }


def identity(stage: str) -> dict[str, Any]:
    """Return what makes the work of a stage this work: its parameters without `run`, its inputs and its code."""
    values = {name: value for name, value in given(stage).items() if name != "run"}
    names = scope(read_yaml(PARAMS))
    deps = paths(stage_entry(read_yaml(DVC), stage), ["deps"], names)
    return {"stage": stage, "params": values, "deps": {dep: _content(Path(dep)) for dep in deps}}


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def open_state(stage: str) -> Iterator[Path]:
    """Yield the folder of a stage's training state, locked against a second training of the same work.

    Of several processes that share a training, the first holds the lock for all.

    Raises:
        DarkroomError: another process holds it.
    """
    who = identity(stage)
    folder = root() / f"{stage}-{key(who)}"
    if int(os.environ.get("RANK", 0)):
        yield folder
        return
    require_writable(folder / LOCK)
    with (folder / LOCK).open("a+") as lock:
        if not _take(lock):
            raise DarkroomError(
                f"{stage} is already being trained by another process (it holds {folder / LOCK}): wait or stop it."
            )
        md5 = {dep: hashlib.md5(Path(dep).read_bytes()).hexdigest() for dep in who["deps"] if Path(dep).is_file()}
        yield folder
        write_json(folder / FINISHED, {**who, "md5": md5})


def _recorded(who: Mapping[str, Any], lock: Mapping[str, Any]) -> bool:
    """Return whether dvc.lock holds a result of this stage with these parameters, this code and these files."""
    entry = lock.get("stages", {}).get(who["stage"], {})
    params = entry.get("params", {}).get(str(PARAMS))
    if not params:
        return False
    found = {dep["path"]: dep.get("md5") for dep in entry.get("deps", [])}
    same_files = all(found.get(path) == md5 for path, md5 in who["md5"].items())
    return same_files and all(lookup(who["params"], key) == value for key, value in params.items())


def sweep() -> None:
    """Remove the states of finished trainings whose results dvc.lock holds; every stage begins with it.

    Housekeeping: what cannot be read now, because another stage or DVC is writing it, is left for the next time.
    """
    record = Path("dvc.lock")
    for marker in root().glob(f"*/{FINISHED}"):
        with contextlib.suppress(OSError, ValueError, AttributeError, KeyError, TypeError, DarkroomError):
            if marker.stat().st_mtime > record.stat().st_mtime:
                continue
            with (marker.parent / LOCK).open("a+") as handle:
                if _take(handle) and _recorded(json.loads(marker.read_text()), read_yaml(record)):
                    shutil.rmtree(marker.parent)
