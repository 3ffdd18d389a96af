"""Check and restore dvc.lock, and find outputs that DVC has lost, without importing DVC if nothing is wrong.

A plain `dvc` rewrites dvc.lock in place, so a signal may truncate it; a merge may leave its markers in it, or it
is deleted. The Snakefile and `darkroom check` then restore the one in git's index. No work is lost: before DVC writes
dvc.lock, the stage is in its run cache and the outputs are in its cache.

Outputs that DVC could not move into its cache, for example because the disk was full, are lost: DVC 3 logs that in one
line and exits with code 0. Its next run removes such an output and makes it again; `dvc commit STAGE` keeps it.
"""

import configparser
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from darkroom.artifacts.atomic import write_bytes
from darkroom.dag.records import BUSY, HEAD, LOCK, CutShortError, entries, held, holders, recorded, uncached
from darkroom.errors import DarkroomError
from darkroom.params.stage import DVC, read_yaml, related
from darkroom.params.yaml_text import conflict

BROKEN = Path(".darkroom/dvc.lock.broken")
RUNS = Path(".dvc/cache/runs")  # the run cache
_OBJECTS = Path("files/md5")
_ENTRY = re.compile(r"^  [^\s-].*:$", re.MULTILINE)


def damage() -> str | None:
    """Return what is wrong with dvc.lock as part of a sentence; None: it is complete or rightly missing.

    Raises:
        DarkroomError: it contains the markers of a git merge; the message names the line.
    """
    try:
        text = LOCK.read_text(encoding="utf-8")
        ends = list(_ENTRY.finditer(text)) if text.startswith(HEAD) and "\0" not in text else []
        if ends and conflict(text) is None:  # it was cut at its end: the other entries are complete
            text = HEAD + text[ends[-1].start() :]
        entries(text)
    except FileNotFoundError:
        return "is missing" if _staged() else None
    except UnicodeDecodeError:
        return "was truncated (it ends in the middle of a character)"
    except CutShortError as error:
        return f"was truncated ({error})"
    return None


def mend() -> str:
    """Restore a dvc.lock that was truncated or deleted, and drop what killed processes left in DVC's records.

    A missing dvc.lock is restored only where git's index lists it, so a new project and `git rm` start without it.

    Returns:
        A message for the terminal, or "".

    Raises:
        DarkroomError: it contains the markers of a git merge, which you must resolve, or DVC's locks fail.
    """
    if damage() is None and not _stuck() and all(any(folder.iterdir()) for folder in RUNS.glob("*/*/")):
        return ""
    from darkroom.dag.repo import mended  # takes half a second, and is rarely needed

    with mended():
        for folder in RUNS.glob("*/*/"):
            with suppress(OSError):  # not empty
                folder.rmdir()
        return _restore()


def _restore() -> str:
    """Restore dvc.lock from git's index if it is truncated or missing, and return a message."""
    reason = damage()
    if reason is None:
        return ""
    if LOCK.exists():
        BROKEN.parent.mkdir(parents=True, exist_ok=True)
        LOCK.replace(BROKEN)
        reason += f" and was moved to {BROKEN}"
    if text := _staged():
        write_bytes(LOCK, text.encode())
    origin = "restored from git's index" if text else "git's index has none, so DVC starts without it"
    return f"{LOCK} {reason}: {origin}. Stages that ended since then come from DVC's run cache without running again."


def _staged() -> str:
    """Return the text of dvc.lock in git's index; "": it is missing or incomplete."""
    with suppress(OSError, UnicodeDecodeError, DarkroomError):
        result = subprocess.run(["git", "show", f":./{LOCK}"], capture_output=True)
        text = result.stdout.decode() if result.returncode == 0 else ""
        entries(text)
        return text
    return ""


def _stuck() -> bool:
    """Return whether `BUSY` was cut short, or lists a process that ended without removing its entries."""
    try:
        return not all(map(held, holders(json.loads(BUSY.read_text(encoding="utf-8")))))
    except FileNotFoundError:
        return False
    except (ValueError, AttributeError, TypeError, KeyError):
        return True


def lost(outs: Mapping[str, str]) -> list[str]:
    """Return the outputs that no DVC cache holds.

    `outs` are their hashes in dvc.lock. The cache entry of a folder is written after all of its files.
    """
    for folder in folders():
        outs = {path: md5 for path, md5 in outs.items() if not (folder / md5[:2] / md5[2:]).is_file()}
        if not outs:
            break
    return sorted(outs)


def lost_of(names: Sequence[str] | None = None, deps: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Return the outputs that exist as recorded in dvc.lock but are in no cache, by stage.

    Stages that were removed from dvc.yaml, or that are out of date for another reason, are ignored. `names` selects
    stages, and `deps` the outputs that overlap with these paths; None: all.
    """
    plain, missing_outs = uncached(read_yaml(DVC)), {}
    for name, entry in recorded().items():
        outs = {out["path"]: out["md5"] for out in entry.get("outs", []) if isinstance(out.get("md5"), str)}
        cached = {
            path: md5
            for path, md5 in outs.items()
            if path not in plain and (deps is None or any(related(path, dep) for dep in deps)) and Path(path).exists()
        }
        if (names is None or name in names) and (missing := lost(cached)):
            missing_outs[name] = missing
    if not missing_outs:
        return {}
    from darkroom.dag.repo import as_recorded

    return {name: missing_outs[name] for name in as_recorded(missing_outs)}


def message(missing_outs: Mapping[str, Sequence[str]]) -> str:
    """Return a message about outputs that are in no cache, by stage: what is wrong and what to do."""
    paths = ", ".join(path for outs in missing_outs.values() for path in outs)
    return (
        f"DVC could not move {paths} into its cache, as when a disk is full, and only its log says so. Free some "
        f"space, then run `dvc commit {' '.join(missing_outs)}` and the same command. Without it, DVC makes them again."
    )


def folders() -> Iterator[Path]:
    """Yield the folders of DVC's objects: first from the clone's settings, then from DVC, which takes 0.5 s."""
    for name in ("config.local", "config"):
        settings = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
        with suppress(OSError, configparser.Error, KeyError, TypeError):
            settings.read_string(Path(".dvc", name).read_text())
            yield Path(".dvc", settings["cache"]["dir"]) / _OBJECTS
    yield Path(".dvc/cache") / _OBJECTS
    from darkroom.dag.repo import cache_folder

    with suppress(DarkroomError):
        yield cache_folder()
