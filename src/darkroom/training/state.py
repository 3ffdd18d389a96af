"""Where a training keeps its state: outside the declared outputs, which both engines delete when a stage is killed.

`$DVC_ROOT/.darkroom/state/STAGE-KEY/`, where KEY is a hash of the parameters, the inputs and the code, and not of
`run`: the same work continues where it stopped, also with a smaller micro-batch, and other work never finds it.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from darkroom.artifacts.atomic import write_json
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
    return {str(found.relative_to(path)): sha256_file(found) for found in sorted(path.rglob("*.py"))}


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

    Raises:
        DarkroomError: another process holds it.
    """
    who = identity(stage)
    folder = root() / f"{stage}-{sha256_json(who)[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as lock:
        if not _take(lock):
            raise DarkroomError(
                f"{stage} is already being trained by another process (it holds {folder / LOCK}): wait or stop it."
            )
        yield folder
        write_json(folder / FINISHED, who)


def _recorded(who: Mapping[str, Any], lock: Mapping[str, Any]) -> bool:
    """Return whether dvc.lock holds a result of this stage with these parameters."""
    entry = lock.get("stages", {}).get(who["stage"], {})
    params = entry.get("params", {}).get(str(PARAMS))
    if not params:
        return False
    try:
        return all(lookup(who["params"], key) == value for key, value in params.items())
    except DarkroomError:
        return False


def sweep() -> None:
    """Remove the states of finished trainings whose results dvc.lock holds; every stage begins with it."""
    record = Path("dvc.lock")
    if not record.is_file() or not root().is_dir():
        return
    lock = None
    for marker in root().glob(f"*/{FINISHED}"):
        if marker.stat().st_mtime > record.stat().st_mtime:
            continue
        lock = lock or read_yaml(record)
        with (marker.parent / LOCK).open("a+") as handle:
            if _take(handle) and _recorded(json.loads(marker.read_text()), lock):
                shutil.rmtree(marker.parent, ignore_errors=True)
