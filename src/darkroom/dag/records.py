"""Read DVC's records without DVC: dvc.lock, outputs of other parameters, and files in use."""

import fcntl
import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, OUTPUTS, address, items, lookup, read_yaml, stage_entry
from darkroom.params.yaml_text import conflict, parse_yaml

LOCK = Path("dvc.lock")
HEAD = "schema: '2.0'\nstages:\n"  # what DVC begins it with
_UNUSUAL = re.compile(r"^(?:\S| *#|  \?)", re.MULTILINE)  # other sections, comments, keys of more than 128 characters
BUSY = Path(".dvc/tmp/rwlock")  # the files in use, by process
HOLDERS = BUSY.with_name("holders")  # a locked file of each process in `BUSY`, whatever machine it runs on
_HOLDER = re.compile(r" #([^/\s]+-\d+-[0-9a-f]{8})$")  # HOST-PID-RANDOM
TURN = Path(".dvc/tmp/turn")  # locked by the engine that runs stages in this checkout


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
            f"{LOCK}, line {line}: this is a Git merge conflict marker: take one whole side (`git checkout "
            f"--ours {LOCK}` or `--theirs`), then `dvc checkout`. Other results come from DVC's run cache."
        )
    if not text:
        raise CutShortError("it is empty")
    if not text.endswith("\n"):  # even if the text is valid YAML, with fewer stages
        raise CutShortError(f"it ends in the middle of line {text.count(chr(10)) + 1}")
    try:
        value = parse_yaml(text, LOCK)
    except DarkroomError as error:
        raise CutShortError(str(error).rstrip(".")) from None
    stages = value.get("stages", {}) if isinstance(value, dict) and value.get("schema") == "2.0" else None
    if not isinstance(stages, dict) or not all(map(_is_entry, stages.values())):
        raise CutShortError("one of its entries is incomplete")
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


def replace_entries(text: str, new: Mapping[str, str]) -> str | None:
    """Return the text of a dvc.lock with new entries, by stage; None: it is not as DVC writes it."""
    if not text.startswith(HEAD) or _UNUSUAL.search(text, len(HEAD)):
        return None
    with suppress(DarkroomError):
        known = entries(text)
        for name, entry in new.items():
            key = entry[: entry.index("\n") + 1]  # the other lines of an entry are empty or indented by four spaces
            old = re.compile(f"^{re.escape(key)}(?: {{4}}.*\n|\n)*", re.MULTILINE)
            text, count = old.subn(entry.replace("\\", r"\\"), text)
            if count != (name in known) or _UNUSUAL.match(entry):
                return None
            if not count:
                text += entry
        written = entries(text)
        others_stay = all(written.get(name) == entry for name, entry in known.items() if name not in new)
        return text if others_stay and list(written) == list(dict.fromkeys([*known, *new])) else None
    return None


def recorded() -> dict[str, Any]:
    """Return the entries of the stages in dvc.lock; {} where it is missing, truncated, or being written."""
    with suppress(OSError, UnicodeDecodeError, DarkroomError):
        return entries(LOCK.read_text(encoding="utf-8"))
    return {}


def uncached(dvc: Mapping[str, Any]) -> set[str]:
    """Return the outputs of dvc.yaml that are stored in git and not in the cache (`cache: false`)."""
    listed = [item for stage in dvc["stages"] for kind in OUTPUTS for item in stage_entry(dvc, stage).get(kind, [])]
    named = [next(iter(item.items())) for item in listed if isinstance(item, Mapping)]
    return {path for path, settings in named if settings.get("cache") is False}


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie, whose parent has not waited for it, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def holders(lock: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of `BUSY`: for each path under `write` one, under `read` several."""
    return [*lock.get("write", {}).values(), *chain.from_iterable(lock.get("read", {}).values())]


def holder_file(entry: Mapping[str, Any], folder: Path = HOLDERS) -> Path | None:
    """Return the file that the process of an entry keeps locked, named behind ` #` in its command; None: plain DVC."""
    named = _HOLDER.search(entry["cmd"])
    return folder / named[1] if named else None


def held(entry: Mapping[str, Any], folder: Path = HOLDERS) -> bool:
    """Return whether the process of an entry runs, here or on another machine; that of a plain DVC must run here."""
    path = holder_file(entry, folder)
    return alive(int(entry["pid"])) if path is None else is_locked(path, remove=True)


def is_locked(path: Path, remove: bool = False) -> bool:
    """Return whether a process keeps a file locked; not if there is no such file. `remove`: else remove the file."""
    with suppress(FileNotFoundError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        if remove:
            path.unlink(missing_ok=True)
    return False


def busy() -> set[str]:
    """Return the absolute paths that running processes of DVC write."""
    for _ in range(10):  # a plain DVC rewrites the file in place
        with suppress(ValueError):
            written = json.loads(BUSY.read_text(encoding="utf-8")).get("write", {}) if BUSY.exists() else {}
            return {path for path, holder in written.items() if held(holder)}
        time.sleep(0.05)
    return set()


def engine_runs() -> bool:
    """Return whether an engine runs stages in this checkout."""
    with suppress(OSError):
        return is_locked(TURN)  # missing if no engine ever ran
    return False


class Outdated(NamedTuple):
    """The stage that replaces an output, and whether it belongs to other data (`parts`, sources, `ingest`)."""

    stage: str
    data: bool

    def __str__(self) -> str:
        inputs = "other data" if self.data else "other parameters (stale)"
        return f"belongs to {inputs} than in {PARAMS}; {self.stage} replaces it when it ends"


def outdated() -> dict[str, Outdated]:
    """Return the outputs in dvc.lock that were made with other values of params.yaml, by path.

    Raises:
        DarkroomError: params.yaml or dvc.yaml cannot be read.
    """
    if not (lock := recorded()):
        return {}
    params, dvc = read_yaml(PARAMS), read_yaml(DVC)
    names = [address(stage, item) for stage in dvc["stages"] if stage != CODE for item in items(params, dvc, stage)]
    writers = {out["path"]: (name, out) for name in names for out in lock.get(name, {}).get("outs", [])}

    @cache
    def is_now(name: str) -> tuple[bool, bool]:
        """Return whether the outputs of a stage belong to the current data, and also to its parameters and inputs."""
        before: Mapping[str, Any] = lock[name].get("params", {}).get(str(PARAMS), {})
        differing = [key for key, value in before.items() if _value(params, key) != value]
        data, current = dict[str, bool](), [not differing]
        for dep in lock[name].get("deps", []):
            if makers := [writers[path] for path in writers if Path(path).is_relative_to(dep["path"])]:
                is_same, states = _is_made_of(dep, [out for _, out in makers]), [is_now(maker) for maker, _ in makers]
                exact = name == "catalog" or dep["path"] in writers  # by hash
                data[dep["path"]] = exact and is_same and all(state[0] for state in states)
                current.append(is_same and all(state[1] for state in states))
        # The catalog identifies the data of the stages that read it; an untrained input has none.
        of_data = {"ingest": not differing, "catalog": "parts" not in differing and all(data.values())}
        return of_data.get(name.partition("@")[0], data.get("data/catalog", all(data.values()))), all(current)

    states = {path: (name, *is_now(name)) for path, (name, _) in writers.items()}
    return {path: Outdated(name, not data) for path, (name, data, current) in states.items() if not current}


def _value(params: Mapping[str, Any], key: str) -> Any:
    with suppress(DarkroomError):
        return lookup(params, key)
    return None  # as DVC records a missing key


def _is_made_of(dep: Mapping[str, Any], outs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether recorded outputs are a recorded input, by hash; a folder may hold files of removed parts."""
    if [out["path"] for out in outs] == [dep["path"]]:
        return bool(outs[0].get("md5") == dep.get("md5"))
    return all(sum(out.get(key, 1) for out in outs) <= dep.get(key, 1) for key in ("size", "nfiles"))
