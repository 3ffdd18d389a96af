"""Protects dvc.lock against signals: DVC rewrites it in place after each stage, and a kill then truncates it.

Each stage keeps a copy of a complete dvc.lock, `.darkroom/dvc.lock`, when it starts; the Snakefile and `darkroom check`
restore it. Missing entries cost no work: before DVC writes dvc.lock, the stage is in its run cache and the outputs are
in its cache. Outdated entries cost no work either, since DVC compares hashes.
"""

# No effect on any output: looks after dvc.lock, which no stage reads

import json
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import write_bytes
from darkroom.errors import DarkroomError
from darkroom.params.yaml_text import conflict, parse_yaml

LOCK = Path("dvc.lock")
KEPT = Path(".darkroom/dvc.lock")
BROKEN = Path(".darkroom/dvc.lock.broken")
BUSY = Path(".dvc/tmp/rwlock")  # the outputs that DVC is working on; written in place, too
_HEAD = "# Kept at commit "


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


def keep() -> None:
    """Keep a copy of dvc.lock where it is complete.

    Another process may be writing it at this moment, so a truncated file is left to `mend`, which waits. A file that
    lacks stages of the copy of this commit does not replace it: it may be truncated between two stages, which DVC
    accepts. A full disk is ignored here: the stage itself reports it.
    """
    with suppress(OSError, UnicodeDecodeError, DarkroomError):
        text = LOCK.read_text(encoding="utf-8")
        head = f"{_HEAD}{_git('rev-parse', 'HEAD')}"
        before, _, old = (_read(KEPT) or "").partition("\n")
        if (before, old) == (head, text):
            return
        found = entries(text)
        if before != head or not _names(old) - found.keys():
            write_bytes(KEPT, f"{head}\n{text}".encode())


def _names(text: str) -> set[str]:
    """Return the stages in a copy of dvc.lock; an empty set where it is not complete."""
    with suppress(DarkroomError):
        return set(entries(text))
    return set()


def damage() -> str | None:
    """Return what is wrong with dvc.lock, as a part of a sentence, or None where it is complete or rightly missing.

    Raises:
        DarkroomError: it contains the markers of a git merge; the message names the line.
    """
    try:
        text = LOCK.read_text(encoding="utf-8")
        if not text or (_read(KEPT) or "").partition("\n")[2] != text:  # its copy was checked before
            entries(text)
    except FileNotFoundError:
        return "is missing" if _source() else None
    except UnicodeDecodeError:
        return "was cut short (it ends in the middle of a character)"
    except CutShortError as error:
        return f"was cut short ({error})"
    return None


def mend() -> str:
    """Restore a dvc.lock that a signal truncated, or that was deleted; return a message for the terminal, or "".

    A missing dvc.lock is restored only where this checkout had one: git's index lists it, or it was never committed and
    the copy was made at the current commit. So a new project, a branch without one and `git rm` start without it.

    Raises:
        DarkroomError: it contains the markers of a git merge, which a person must resolve, or DVC's locks fail.
    """
    if damage() is None and _is_json(BUSY) and not _killed():
        return ""
    with _alone():  # no other process writes either of the files from here on
        said = []
        if reason := damage():
            if LOCK.exists():
                BROKEN.parent.mkdir(parents=True, exist_ok=True)
                LOCK.replace(BROKEN)
                reason += f", and lies in {BROKEN} now"
            found = _source()
            if found is None:
                outcome = "there is no copy of it that belongs to this commit, so DVC begins without"
            else:
                write_bytes(LOCK, found[0].encode())
                outcome = f"{found[1]} it is back"
            said.append(f"{LOCK} {reason}: {outcome}. What has ended since comes from DVC's run cache, without work.")
        if not _is_json(BUSY):
            BUSY.unlink()
            said.append(f"{BUSY}, in which DVC notes what is being made, was cut short: removed.")
        if killed := _killed():
            _release(killed)
        return "\n".join(said)


def _source() -> tuple[str, str] | None:
    """Return the text of the dvc.lock to restore, and its origin as a phrase; None: there is none."""
    staged = _git("show", f":./{LOCK}")
    head, _, text = (_read(KEPT) or "").partition("\n")
    if head == _HEAD + _git("rev-parse", "HEAD") and (staged or not _git("show", f"HEAD:./{LOCK}")):
        return text, "as it last was whole here,"
    with suppress(DarkroomError):
        entries(staged)
        return staged, "as git's index has it,"
    return None


def _git(*words: str) -> str:
    """Return the output of a git command, "" where it fails."""
    with suppress(OSError, UnicodeDecodeError):
        done = subprocess.run(["git", *words], capture_output=True)
        text = done.stdout.decode() if done.returncode == 0 else ""
        return text if words[0] == "show" else text.strip()
    return ""


def _read(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return None


def _is_json(path: Path) -> bool:
    """Return whether a file is missing or holds JSON."""
    try:
        return isinstance(json.loads(path.read_text()), Mapping)
    except FileNotFoundError:
        return True
    except ValueError:
        return False


def _holders(busy: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the processes in `BUSY`: for each path that is written one, for each that is read a list."""
    yield from busy.get("write", {}).values()
    for readers in busy.get("read", {}).values():
        yield from readers


def busy() -> set[str]:
    """Return the absolute paths that running processes of DVC write, by `BUSY`, which is itself rewritten in place."""
    import psutil

    for _ in range(10):
        with suppress(ValueError):
            written = json.loads(_read(BUSY) or "{}" * (not BUSY.exists())).get("write", {})
            pids = {path: int(holder["pid"]) for path, holder in written.items()}
            return {path for path, pid in pids.items() if psutil.pid_exists(pid) and not _is_zombie(pid)}
        time.sleep(0.05)
    return set()


def _killed() -> set[int]:
    """Return the processes in `BUSY` that were killed and that nobody has waited for.

    DVC ignores a process that is gone, but takes such a one for running. In a container whose first process is, for
    example, `sleep`, it stays so for ever.
    """
    text = _read(BUSY)
    found = {int(holder["pid"]) for holder in _holders(json.loads(text))} if text else set()
    return {number for number in found if _is_zombie(number)}


def _is_zombie(number: int) -> bool:
    import psutil  # rarely needed

    with suppress(psutil.NoSuchProcess):
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    return False


def _release(killed: Iterable[int]) -> None:
    """Remove killed processes from `BUSY`, whose lock is held."""
    busy = json.loads(BUSY.read_text())
    write = {path: holder for path, holder in busy.get("write", {}).items() if int(holder["pid"]) not in killed}
    read = {
        path: kept
        for path, holders in busy.get("read", {}).items()
        if (kept := [holder for holder in holders if int(holder["pid"]) not in killed])
    }
    write_bytes(BUSY, json.dumps({**busy, "write": write, "read": read}).encode())


@contextmanager
def _alone() -> Iterator[None]:
    """Hold DVC's locks inside the block: DVC writes dvc.lock under one of them, and `BUSY` under the other."""
    from dvc.exceptions import DvcException  # takes half a second, and is rarely needed
    from dvc.lock import make_lock
    from dvc.repo import Repo

    try:
        with (
            Repo(_wait_for_lock=True) as repo,
            repo.lock,
            make_lock(str(Path(str(repo.tmp_dir), f"{BUSY.name}.lock")), wait=True),
        ):
            yield
    except DvcException as error:
        raise DarkroomError(f"{LOCK} is broken, and DVC cannot be asked to wait while it is mended: {error}") from error
