"""`darkroom why STAGE`: show which parameter, input or function made a stage stale."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from darkroom.dag.fingerprint.stages import OUT, STAGE, Fingerprint, changes
from darkroom.dag.lock_file import folders
from darkroom.dag.records import recorded
from darkroom.dag.repo import RUNNING, Status, observe
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, differences, lookup, paths, read_yaml, scope, stage_entry
from darkroom.tools import command, nearest

_DEPS = {"new": "is a new dependency", "deleted": "is missing", "modified": "has changed"}
_OUTS = {"deleted": "is missing", "modified": "is not what the stage wrote", "not in cache": "is not in DVC's cache"}


@command("Train", "why", "Show which parameter, input or function made a stage stale.")
def why(
    name: Annotated[str, Argument(metavar="STAGE", help="a stage, or one run of it: STAGE@PART, STAGE@UNET")],
) -> str:
    """Return the reasons why a stage is stale, one per line, and those of the stages that it waits for.

    Raises:
        DarkroomError: there is no such stage, or DVC cannot read the repository.
    """
    lines: list[str] = []
    status = observe()
    chosen = [each for each in status.stages if name in (each, each.partition("@")[0])]
    if not chosen:
        raise DarkroomError(f"there is no stage `{name}`: {nearest(name, list(status.stages))}")
    for each in chosen:
        above = status.needs(each) & status.changed.keys() - {each}
        if status.runs(each):
            lines.append(f"{each} {status.runs(each)}.")
            continue
        lines.append(f"{each} is {'stale:' if each in status.stale else 'up to date.'}")
        lines += [f"  {line}" for line in _reasons(status, each)]
        for parent in sorted(above, key=list(status.stages).index):
            lines.append(f"  it waits for {parent}, which {status.runs(parent) or 'is stale:'}")
            lines += [f"    {line}" for line in _reasons(status, parent)]
    return "\n".join(lines)


def _reasons(status: Status, name: str) -> Iterator[str]:
    """Yield the changes of a stage from its status in DVC."""
    entries = status.changed.get(name, [])
    entry = recorded().get(name)
    if entry is None:
        if entries and entries != [RUNNING]:
            yield "it has not run yet: dvc.lock has no record of it"
        return
    for change in entries:
        if change == "changed command":
            yield "its command has changed"
        elif isinstance(change, Mapping):
            for path, state in change.get("changed deps", {}).items():
                if path == str(PARAMS):
                    yield from _parameters(name, entry)
                elif path.startswith(f"{OUT}/"):
                    yield from _code(path, entry, status.code.get(path))
                else:
                    yield f"{path} {_DEPS.get(state, state)}"
            for path, state in change.get("changed outs", {}).items():
                yield f"its output {path} {_OUTS.get(state, state)}"


def _parameters(name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parameters that differ, with their current and earlier values."""
    old: Mapping[str, Any] = entry.get("params", {}).get(str(PARAMS), {})
    stage, _, item = name.partition("@")
    values, dvc = read_yaml(PARAMS), read_yaml(DVC)
    keys = sorted(paths(stage_entry(dvc, stage), ["params"], scope(values, dvc, stage, item or None)))
    yield from (f"{key} is no longer a parameter of it" for key in sorted(old.keys() - set(keys)))
    new = {}
    for key in keys:
        with suppress(DarkroomError):  # the stage will name the missing key
            new[key] = lookup(values, key)
    yield from differences("", {key: old[key] for key in keys if key in old}, new)


def _code(path: str, entry: Mapping[str, Any], new: Fingerprint | None) -> Iterator[str]:
    """Yield the modules and functions that differ, with `new` in place of the content of the file."""
    md5 = next((dep.get("md5") for dep in entry.get("deps", []) if dep["path"] == path), None)
    if md5 is None:
        yield f"it now runs the code of {path}"
        return
    before = next((file for folder in folders() if (file := folder / md5[:2] / md5[2:]).is_file()), None)
    if before is None:
        yield f"the code has changed; DVC's cache has no earlier record of it (`dvc fetch {STAGE}` where it ran)"
        return
    yield from changes(json.loads(before.read_text()), new or json.loads(Path(path).read_text()))
