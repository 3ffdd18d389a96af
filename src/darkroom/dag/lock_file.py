"""dvc.lock where DVC cannot read it: truncated by a signal, deleted, or left by a merge.

DVC as `dag/dvc.py` mends it truncates nothing; a plain `dvc` rewrites dvc.lock in place. The Snakefile and `darkroom
check` then restore the one in git's index. What has ended since costs no work: before DVC writes dvc.lock, the stage is
in its run cache and the outputs are in its cache.
"""

import json
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

from darkroom.artifacts.atomic import write_bytes
from darkroom.errors import DarkroomError
from darkroom.params.yaml_text import conflict, parse_yaml

LOCK = Path("dvc.lock")
BROKEN = Path(".darkroom/dvc.lock.broken")
BUSY = Path(".dvc/tmp/rwlock")  # which process works on which files
RUNS = Path(".dvc/cache/runs")  # the run cache


class CutShortError(DarkroomError):
    """dvc.lock is truncated."""


@lru_cache(maxsize=2)
def entries(text: str) -> dict[str, Any]:
    """Return the entries of the stages in the text of a dvc.lock, by name, after checking that it is complete.

    Raises:
        CutShortError: DVC cannot read it, or it ends in the middle of a line.
        DarkroomError: it contains the markers of a git merge; the message names the line.
    """
    if line := conflict(text):
        raise DarkroomError(
            f"{LOCK}, line {line}: git left the marker of a merge there: take one side as a whole (`git checkout "
            f"--ours {LOCK}`, or `--theirs`), then `dvc checkout`. What that side lacks comes from DVC's run cache."
        )
    if not text:
        raise CutShortError("it is empty")
    if not text.endswith("\n"):  # also where the rest is valid YAML with fewer stages
        raise CutShortError(f"it ends in the middle of line {text.count(chr(10)) + 1}")
    try:
        value = parse_yaml(text, LOCK)
    except DarkroomError as error:
        raise CutShortError(str(error).rstrip(".")) from None
    stages = value.get("stages", {}) if isinstance(value, dict) and value.get("schema") == "2.0" else None
    if not isinstance(stages, dict) or not all(map(_is_entry, stages.values())):
        raise CutShortError("an entry of it is not complete")
    return stages


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("cmd"), str | list):
        return False
    files = [entry.get(kind, []) for kind in ("deps", "outs")]
    params = entry.get("params", {})
    return (
        all(isinstance(each, list) for each in files)
        and all(isinstance(file, dict) and isinstance(file.get("path"), str) for each in files for file in each)
        and isinstance(params, dict)
        and all(isinstance(values, dict) for values in params.values())
    )


def recorded() -> dict[str, Any]:
    """Return the entries of the stages in dvc.lock; {} where it is missing, truncated, or being written."""
    with suppress(OSError, UnicodeDecodeError, DarkroomError):
        return entries(LOCK.read_text(encoding="utf-8"))
    return {}


def damage() -> str | None:
    """Return what is wrong with dvc.lock, as a part of a sentence, or None where it is complete or rightly missing.

    Raises:
        DarkroomError: it contains the markers of a git merge; the message names the line.
    """
    try:
        entries(LOCK.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "is missing" if _staged() else None
    except UnicodeDecodeError:
        return "was cut short (it ends in the middle of a character)"
    except CutShortError as error:
        return f"was cut short ({error})"
    return None


def mend() -> str:
    """Restore a dvc.lock that was truncated or deleted, and drop what killed processes left in DVC's records.

    A missing dvc.lock is restored only where git's index lists it, so a new project and `git rm` start without it.

    Returns:
        A message for the terminal, or "".

    Raises:
        DarkroomError: it contains the markers of a git merge, which a person must resolve, or DVC's locks fail.
    """
    if damage() is None and not _stuck() and all(any(folder.iterdir()) for folder in RUNS.glob("*/*/")):
        return ""
    from dvc.exceptions import DvcException  # takes half a second, and is rarely needed

    from darkroom.dag.dvc import drop, edit_rwlock, open_repo

    try:
        with open_repo() as repo, repo.lock:  # DVC writes dvc.lock under it
            with edit_rwlock(str(BUSY.parent)) as lock:
                for kind in ("write", "read"):
                    drop(lock, kind, lambda entry: not alive(int(entry["pid"])))
            for folder in RUNS.glob("*/*/"):
                with suppress(OSError):  # not empty
                    folder.rmdir()
            return _restore()
    except DvcException as error:
        raise DarkroomError(f"cannot repair {LOCK} and {BUSY}, since DVC's lock is not available: {error}") from error


def _restore() -> str:
    """Write the dvc.lock of git's index where it is truncated or missing, and return a message on it."""
    reason = damage()
    if reason is None:
        return ""
    if LOCK.exists():
        BROKEN.parent.mkdir(parents=True, exist_ok=True)
        LOCK.replace(BROKEN)
        reason += f", and is now {BROKEN}"
    if text := _staged():
        write_bytes(LOCK, text.encode())
    origin = "restored as git's index has it" if text else "git's index has none, so DVC begins without"
    return f"{LOCK} {reason}: {origin}. What has ended since comes from DVC's run cache, without work."


def _staged() -> str:
    """Return the text of dvc.lock in git's index; "" where there is none, or it is not complete."""
    with suppress(OSError, UnicodeDecodeError, DarkroomError):
        done = subprocess.run(["git", "show", f":./{LOCK}"], capture_output=True)
        text = done.stdout.decode() if done.returncode == 0 else ""
        entries(text)
        return text
    return ""


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie, whose parent has not waited for it, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def holders(lock: Mapping[str, Any]) -> set[int]:
    """Return the processes that `BUSY` lists: for each path under `write` one, under `read` several."""
    entries = [
        *lock.get("write", {}).values(),
        *(entry for readers in lock.get("read", {}).values() for entry in readers),
    ]
    return {int(entry["pid"]) for entry in entries}


def busy() -> set[str]:
    """Return the absolute paths that running processes of DVC write."""
    for _ in range(10):  # a plain DVC rewrites the file in place
        with suppress(ValueError):
            written = json.loads(BUSY.read_text(encoding="utf-8")).get("write", {}) if BUSY.exists() else {}
            return {path for path, holder in written.items() if alive(int(holder["pid"]))}
        time.sleep(0.05)
    return set()


def _stuck() -> bool:
    """Return whether `BUSY` was cut short, or lists a process that ended without removing its entries."""
    try:
        return not all(map(alive, holders(json.loads(BUSY.read_text(encoding="utf-8")))))
    except FileNotFoundError:
        return False
    except (ValueError, AttributeError, TypeError, KeyError):
        return True
