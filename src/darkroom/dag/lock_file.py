"""What dvc.lock records, without asking DVC: whether it is whole, and which outputs are lost or outdated.

A signal may truncate dvc.lock, a merge may leave its markers there, or it is deleted. DVC as `dag/dvc.py` mends it
truncates nothing; a plain `dvc` rewrites dvc.lock in place. The Snakefile and `darkroom check` then restore the one in
git's index. What has ended since costs no work: before DVC writes dvc.lock, the stage is in its run cache and the
outputs are in its cache.

Outputs are lost that DVC could not move into its cache, for example because the disk was full. DVC 3 logs such an
output in one line, records it in dvc.lock and exits with code 0. Its next run finds the output "not in cache", removes
it and makes it again; `dvc commit STAGE` keeps it instead.
"""

import configparser
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from darkroom.artifacts.atomic import write_bytes
from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, OUTPUTS, address, items, lookup, read_yaml, related, stage_entry
from darkroom.params.yaml_text import conflict, parse_yaml

LOCK = Path("dvc.lock")
BROKEN = Path(".darkroom/dvc.lock.broken")
BUSY = Path(".dvc/tmp/rwlock")  # which process works on which files
RUNS = Path(".dvc/cache/runs")  # the run cache
_OBJECTS = Path("files/md5")


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
    from darkroom.dag.repo import mended  # takes half a second, and is rarely needed

    with mended():
        for folder in RUNS.glob("*/*/"):
            with suppress(OSError):  # not empty
                folder.rmdir()
        return _restore()


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


def uncached(dvc: Mapping[str, Any]) -> set[str]:
    """Return the outputs of dvc.yaml that are stored in git and not in the cache (`cache: false`)."""
    listed = [item for stage in dvc["stages"] for kind in OUTPUTS for item in stage_entry(dvc, stage).get(kind, [])]
    named = [next(iter(item.items())) for item in listed if isinstance(item, Mapping)]
    return {path for path, settings in named if settings.get("cache") is False}


def lost(outs: Mapping[str, str]) -> list[str]:
    """Return the outputs that no DVC cache holds.

    Args:
        outs: the hash of each output from dvc.lock. The cache entry of a folder is written after all of its files.
    """
    for folder in folders():
        outs = {path: md5 for path, md5 in outs.items() if not (folder / md5[:2] / md5[2:]).is_file()}
        if not outs:
            break
    return sorted(outs)


def lost_of(names: Sequence[str] | None = None, deps: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Return the outputs that exist as recorded in dvc.lock but are in no cache, by stage.

    Stages that were removed from dvc.yaml, or that are out of date for another reason, are ignored.

    Args:
        names: the stages to check; None: all.
        deps: check the outputs that overlap with these paths; None: all.
    """
    plain, found = uncached(read_yaml(DVC)), {}
    for name, entry in recorded().items():
        outs = {out["path"]: out["md5"] for out in entry.get("outs", []) if isinstance(out.get("md5"), str)}
        asked = {
            path: md5
            for path, md5 in outs.items()
            if path not in plain and (deps is None or any(related(path, dep) for dep in deps)) and Path(path).exists()
        }
        if (names is None or name in names) and (missing := lost(asked)):
            found[name] = missing
    if not found:
        return {}
    from darkroom.dag.repo import as_recorded

    return {name: found[name] for name in as_recorded(found)}


def message(found: Mapping[str, Sequence[str]]) -> str:
    """Return a message on outputs that are in no cache, by their stages: what is wrong and what to do."""
    paths = ", ".join(path for outs in found.values() for path in outs)
    return (
        f"DVC could not move {paths} into its cache, as where a disk is full, and says so only in its log: free some "
        f"space, then `dvc commit {' '.join(found)}` and the same command. Without it, DVC makes them again."
    )


def folders() -> Iterator[Path]:
    """Yield the folders of DVC's objects: first from the clone's settings, then from DVC, which takes half a second."""
    for name in ("config.local", "config"):
        settings = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
        with suppress(OSError, configparser.Error, KeyError, TypeError):
            settings.read_string(Path(".dvc", name).read_text())
            yield Path(".dvc", settings["cache"]["dir"]) / _OBJECTS
    yield Path(".dvc/cache") / _OBJECTS
    from darkroom.dag.repo import cache_folder

    with suppress(DarkroomError):
        yield cache_folder()


class Outdated(NamedTuple):
    """The stage that replaces an output, and whether that is of other data (`parts`, sources, `ingest`)."""

    stage: str
    data: bool

    def __str__(self) -> str:
        what = "other data" if self.data else "other parameters (stale)"
        return f"belongs to {what} than {PARAMS} names; {self.stage} replaces it when it ends"


def outdated() -> dict[str, Outdated]:
    """Return the outputs of dvc.lock that are not of params.yaml, by path.

    Raises:
        DarkroomError: params.yaml or dvc.yaml cannot be read.
    """
    if not (lock := recorded()):
        return {}
    params, dvc = read_yaml(PARAMS), read_yaml(DVC)
    names = [address(stage, item) for stage in dvc["stages"] if stage != CODE for item in items(params, dvc, stage)]
    made = {out["path"]: (name, out) for name in names for out in lock.get(name, {}).get("outs", [])}

    @cache
    def is_now(name: str) -> tuple[bool, bool]:
        """Return whether the outputs of a stage are of the data of now, and also of its parameters and inputs."""
        before: Mapping[str, Any] = lock[name].get("params", {}).get(str(PARAMS), {})
        differing = [key for key, value in before.items() if _value(params, key) != value]
        data, rest = dict[str, bool](), [not differing]
        for dep in lock[name].get("deps", []):
            if makers := [made[path] for path in made if Path(path).is_relative_to(dep["path"])]:
                same, states = _is_made_of(dep, [out for _, out in makers]), [is_now(maker) for maker, _ in makers]
                exact = name == "catalog" or dep["path"] in made  # by hash
                data[dep["path"]] = exact and same and all(state[0] for state in states)
                rest.append(same and all(state[1] for state in states))
        # The catalog names the data of the stages that read it; an input that nothing was trained for names none.
        of_data = {"ingest": not differing, "catalog": "parts" not in differing and all(data.values())}
        return of_data.get(name.partition("@")[0], data.get("data/catalog", all(data.values()))), all(rest)

    states = {path: (name, *is_now(name)) for path, (name, _) in made.items()}
    return {path: Outdated(name, not data) for path, (name, data, rest) in states.items() if not rest}


def _value(params: Mapping[str, Any], key: str) -> Any:
    with suppress(DarkroomError):
        return lookup(params, key)
    return None  # as DVC records a key that does not stand there


def _is_made_of(dep: Mapping[str, Any], outs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether recorded outputs are a recorded input: by hash; a folder may hold more, of removed parts."""
    if [out["path"] for out in outs] == [dep["path"]]:
        return bool(outs[0].get("md5") == dep.get("md5"))
    return all(sum(out.get(key, 1) for out in outs) <= dep.get(key, 1) for key in ("size", "nfiles"))


def main(stage: str) -> int:
    """Print which outputs of a stage DVC could not move into its cache; return 1 where there are any.

    Each rule of Snakemake runs it behind its stage.
    """
    if found := lost_of([stage]):
        print(f"{stage}: {message(found)}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
