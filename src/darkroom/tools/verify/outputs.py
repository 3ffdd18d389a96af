"""Check the bytes of every output in dvc.lock, and of its objects in the DVC cache.

DVC rehashes a file only if its size, time or inode has changed, and trusts read-only objects of its cache.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from darkroom.dag.lock_file import damage, folders
from darkroom.dag.records import LOCK, recorded, uncached
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, address, items, read_yaml
from darkroom.training.state import dvc_md5, file_hashes, md5_file

_MADE = re.compile(r"^- path: (.+)\n(?:  .+\n)*?  md5: (.+)$", re.MULTILINE)  # an output in DVC's run cache


class Problem(NamedTuple):
    """One error: the file or object, what is wrong with it, what to do, and details."""

    path: Path | str
    fault: str
    remedy: str
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.path}: {self.fault}{detail}: {self.remedy}."


class Output(NamedTuple):
    """An output in dvc.lock; `cached`: whether its bytes are also objects of DVC's cache."""

    path: Path
    md5: str
    stage: str
    cached: bool


def recorded_outputs() -> list[Output]:
    """Return the outputs in dvc.lock of the stages in dvc.yaml and params.yaml.

    Raises:
        DarkroomError: dvc.lock is damaged.
    """
    if reason := damage():
        raise DarkroomError(f"{LOCK} {reason}: `darkroom check` restores it.")
    if not (entries := recorded()):
        return []
    dvc, params = read_yaml(DVC), read_yaml(PARAMS)
    plain = uncached(dvc)
    return [
        Output(Path(out["path"]), out["md5"], name, out["path"] not in plain)
        for stage in dvc["stages"]
        for name in (address(stage, item) for item in items(params, dvc, stage))
        for out in entries.get(name, {}).get("outs", [])
        if isinstance(out.get("md5"), str)
    ]


class Cache:
    """The DVC cache: its objects, and its list of the outputs of stages that ran here."""

    def __init__(self) -> None:
        self._folders = list(folders())
        runs = [file for folder in self._folders for file in (folder.parents[1] / "runs").rglob("*") if file.is_file()]
        texts = (file.read_text(encoding="utf-8", errors="replace") for file in runs)
        self._made = {output for text in texts for output in _MADE.findall(text.rpartition("\nouts:\n")[2])}

    def find(self, md5: str) -> Path | None:
        """Return the file of an object; None if it is not cached."""
        paths = (folder / md5[:2] / md5[2:] for folder in self._folders)
        return next((path for path in paths if path.is_file()), None)

    def never_had(self, output: Output) -> bool:
        """Return whether an output is missing because its stage has not run here, as in a new clone."""
        if not output.cached or output.path.exists() or (str(output.path), output.md5) in self._made:
            return False
        # An object may be an equal output of another stage: disabled trainings have equal outputs.
        return self.find(output.md5) is None or any(md5 == output.md5 for _, md5 in self._made)


def check_output(output: Output, cache: Cache) -> list[Problem]:
    """Return the errors of an output: of its files against dvc.lock, of its objects against their names."""
    try:
        return list(_problems(output, cache))
    except OSError as error:
        remedy = f"check the disk and the permissions, then make it again with `dvc repro {output.stage}`"
        return [Problem(error.filename or output.path, "cannot be read", remedy, detail=str(error.strerror))]


def _problems(output: Output, cache: Cache) -> Iterator[Problem]:
    path, stage = output.path, output.stage
    here = file_hashes(path) if path.exists() else {}
    sound = path.exists() and dvc_md5(path, here) == output.md5
    files: Mapping[str, str] | None = here if sound else None  # as recorded; None: unknown
    restore = f"`git checkout {path}`"
    if output.cached:
        root = cache.find(output.md5)
        if not output.md5.endswith(".dir"):
            files = {".": output.md5}
        elif files is None and root is not None and md5_file(root) == output.md5.removesuffix(".dir"):
            files = {entry["relpath"]: entry["md5"] for entry in json.loads(root.read_bytes())}
        faults = list(_of_cache(output, cache, {output.md5, *(files or {}).values()}, sound))
        yield from faults
        restore = f"`dvc fetch {stage}` and `dvc checkout {path}`" if faults else f"`dvc checkout {path}`"
    remedy = f"restore it with {restore}, or make it again with `dvc repro {stage}`"
    if not path.exists():
        yield Problem(path, "is missing", remedy)
    elif not sound and (files is None or "." in files or "." in here):
        yield Problem(path, f"is not what {LOCK} records", f"delete it and {remedy}")
    elif not sound and files is not None:
        for name in sorted(here.keys() - files.keys()):
            yield Problem(path / name, "belongs to no output, and nothing reads it", "delete it")
        for name in sorted(name for name, md5 in files.items() if here.get(name) != md5):
            fault = f"is not what {LOCK} records" if name in here else "is missing"
            yield Problem(path / name, fault, f"delete {path} and {remedy}")


def _of_cache(output: Output, cache: Cache, objects: set[str], sound: bool) -> Iterator[Problem]:
    """Yield the errors of the objects of an output; `sound`: whether its files are as recorded."""
    stage, missing = output.stage, 0
    remedy = f"`dvc commit {stage}`" if sound else f"`dvc fetch {stage}` from a remote, or `dvc repro {stage}`"
    for md5 in sorted(objects):
        if (path := cache.find(md5)) is None:
            missing += 1
        elif md5_file(path) != md5.removesuffix(".dir"):
            fault = "is damaged: the hash of its content differs from its name"
            yield Problem(path, fault, f"delete it, then {remedy}", detail=f"of {output.path}, stage {stage}")
    if missing:
        detail = f"{missing:,} of {len(objects):,} objects missing"
        yield Problem(output.path, "is incomplete in DVC's cache", remedy, detail=detail)
