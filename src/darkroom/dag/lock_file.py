"""dvc.lock against signals: DVC empties it and writes it anew after each stage, and who ends it then cuts it short.

A stage begins by keeping a copy of a whole one, `.darkroom/dvc.lock`; the Snakefile and `darkroom check` put it back.
What the copy lacks costs no work: before DVC writes dvc.lock, the stage is in its run cache and the outputs are in its
cache. What it has too much costs none either, since DVC compares hashes and trusts no entry by its name.
"""

# No effect on any output: looks after dvc.lock, which no stage reads

import json
import subprocess
from collections.abc import Iterator, Mapping
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
BUSY = Path(".dvc/tmp/rwlock")  # which outputs DVC is working on; written in the same way
_HEAD = "# Kept at commit "


class CutShortError(DarkroomError):
    """dvc.lock is not what DVC writes when nothing ends it."""


@lru_cache(maxsize=2)
def entries(text: str) -> dict[str, Any]:
    """Return the entries of the stages in the text of a dvc.lock, by their names, after looking whether it is whole.

    Raises:
        CutShortError: DVC would not read it, or it ends in the middle of a line.
        DarkroomError: git left the markers of a merge; names the line.
    """
    if line := conflict(text):
        raise DarkroomError(
            f"{LOCK}, line {line}: git left the marker of a merge there: take one side as a whole (`git checkout "
            f"--ours {LOCK}`, or `--theirs`), then `dvc checkout`. What that side lacks comes from DVC's run cache."
        )
    if not text:
        raise CutShortError("it is empty")
    if not text.endswith("\n"):  # also where what is left is valid YAML, and would count as fewer stages
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
    """Return the entries of the stages in dvc.lock; {} where it is missing, or broken, or just being written."""
    with suppress(OSError, UnicodeDecodeError, DarkroomError):
        return entries(LOCK.read_text(encoding="utf-8"))
    return {}


def keep() -> None:
    """Keep a copy of dvc.lock where it is whole.

    Another process may be writing it just now, so what is broken is left for `mend`, which waits for that. One that
    lacks stages which the copy of this commit has replaces no copy: it may be cut behind a stage, which DVC accepts. A
    disk that is full is for the stage to find out.
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
    """Return the stages that a copy of dvc.lock has; none where it is no whole one."""
    with suppress(DarkroomError):
        return set(entries(text))
    return set()


def damage() -> str | None:
    """Return what is wrong with dvc.lock, as a part of a sentence, or None where it is whole or rightly missing.

    Raises:
        DarkroomError: git left the markers of a merge; names the line.
    """
    try:
        text = LOCK.read_text(encoding="utf-8")
        if not text or (_read(KEPT) or "").partition("\n")[2] != text:  # its copy was looked at
            entries(text)
    except FileNotFoundError:
        return "is missing" if _source() else None
    except UnicodeDecodeError:
        return "was cut short (it ends in the middle of a character)"
    except CutShortError as error:
        return f"was cut short ({error})"
    return None


def mend() -> str:
    """Put back a dvc.lock that a signal cut short, or that was deleted; return a sentence for the person, or "".

    One that is missing comes back only where this checkout had it: git's index lists it, or it was never committed and
    the copy was kept at this very commit. So a new project, a branch without one and `git rm` begin without.

    Raises:
        DarkroomError: git left the markers of a merge, which a person must resolve; or DVC cannot be asked to wait.
    """
    if damage() is None and _is_json(BUSY):
        return ""
    with _alone():  # nobody writes either of them from here on
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
        return "\n".join(said)


def _source() -> tuple[str, str] | None:
    """Return the text of the dvc.lock that belongs here, and where it is from; None where none does."""
    staged = _git("show", f":./{LOCK}")
    head, _, text = (_read(KEPT) or "").partition("\n")
    if head == _HEAD + _git("rev-parse", "HEAD") and (staged or not _git("show", f"HEAD:./{LOCK}")):
        return text, "as it last was whole here,"
    with suppress(DarkroomError):
        entries(staged)
        return staged, "as git's index has it,"
    return None


def _git(*words: str) -> str:
    """Return what git prints, "" where it knows nothing of that."""
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


@contextmanager
def _alone() -> Iterator[None]:
    """Hold DVC's own locks inside the block: it writes dvc.lock under one of them, and what is busy under the other."""
    from dvc.exceptions import DvcException  # takes half a second, and nothing is broken as a rule
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
