"""The parameters of a stage, from params.yaml and dvc.yaml: its own sections, validated, and nothing else.

A stage is handed only the keys that its entry in dvc.yaml names under `params`, so it cannot read a value that DVC does
not know it depends on. The section `run` is the exception: every stage sees it, because nothing in it changes a result.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.training import with_shared
from darkroom.params.yaml_text import parse_yaml

OUTPUTS = ("outs", "metrics", "plots")
DVC = Path("dvc.yaml")

_ABSENT = object()
_TEMPLATE = re.compile(r"\$\{([^}]+)\}")


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        DarkroomError: missing, not YAML as DVC reads it, or not a mapping; names the file, line and column.
    """
    try:
        value = parse_yaml(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError as error:
        raise DarkroomError(f"{path} is missing: `git checkout {path}` restores it.") from error
    except UnicodeDecodeError as error:
        raise DarkroomError(f"{path} is not valid YAML: {error}.") from error
    if not isinstance(value, dict):
        raise DarkroomError(f"{path} must contain sections, but contains {type(value).__name__}.")
    return value


def lookup(values: Mapping[str, Any], key: str) -> Any:
    """Return the value under a dotted key (`a.b.c`).

    Raises:
        DarkroomError: the key does not exist; names the nearest one that does.
    """
    value: Any = values
    for depth, name in enumerate(parts := key.split(".")):
        if not isinstance(value, Mapping) or name not in value:
            near = difflib.get_close_matches(name, value.keys() if isinstance(value, Mapping) else [], n=1)
            parent = ".".join(parts[:depth]) or str(PARAMS)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise DarkroomError(f"`{key}` is not in {PARAMS}: {parent} has no `{name}`.{hint}")
        value = value[name]
    return value


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and value of each leaf of nested mappings."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def resolve(text: str, values: Mapping[str, Any]) -> str:
    """Return `text` with every `${key}` replaced by its value, as DVC does."""
    return _TEMPLATE.sub(lambda match: str(lookup(values, match[1].strip())), text)


def stage_entry(dvc: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """Return a stage's entry in dvc.yaml, the inner one where it is a `foreach`."""
    entry = dvc["stages"][stage]
    return entry.get("do", entry)


def spread_over(dvc: Mapping[str, Any], stage: str) -> str | None:
    """Return the key of params.yaml whose entries a stage runs once for (`foreach`); None: it runs once."""
    template = dvc["stages"][stage].get("foreach")
    return None if template is None else str(template).removeprefix("${").removesuffix("}").strip()


def items(params: Mapping[str, Any], dvc: Mapping[str, Any], stage: str) -> list[str] | list[None]:
    """Return the names of the entries for which a stage runs; a single None where it runs once."""
    over = spread_over(dvc, stage)
    return [None] if over is None else list(lookup(params, over))


def address(stage: str, item: str | None) -> str:
    """Return DVC's name of a stage, or of one of its runs: STAGE@ITEM."""
    return stage if item is None else f"{stage}@{item}"


def file_name(stage: str, item: str | None) -> str:
    """Return the name of a stage's run for file names: STAGE-ITEM. Names of stages contain no hyphen."""
    return address(stage, item).replace("@", "-")


def scope(params: Mapping[str, Any], dvc: Mapping[str, Any], stage: str, item: str | None = None) -> dict[str, Any]:
    """Return what `${…}` can name in a stage's entry in dvc.yaml: params.yaml, and in a `foreach` `key` and `item`.

    DVC calls the entry's name `key` and its value `item`; everywhere else here the name is the item.
    """
    if item is None:
        return dict(params)
    return {**params, "key": item, "item": lookup(params, f"{spread_over(dvc, stage)}.{item}")}


def paths(entry: Mapping[str, Any], kinds: Iterable[str], names: Mapping[str, Any]) -> list[str]:
    """Return the paths that a stage's entry lists under some kinds (`deps`, `outs`, `metrics`, `plots`), resolved."""
    items = [item for kind in kinds for item in entry.get(kind, [])]
    return [resolve(item if isinstance(item, str) else next(iter(item)), names) for item in items]


def related(one: str, other: str) -> bool:
    """Return whether two paths are the same, or one contains the other."""
    first, second = _inside(one), _inside(other)
    return first.startswith(second) or second.startswith(first)


@cache
def _inside(path: str) -> str:
    """Return the common prefix of all paths in a folder; strings, since tens of thousands are compared."""
    plain = os.path.normpath(path)
    return "" if plain == "." else f"{plain.rstrip('/')}/"


def threads(section: Mapping[str, Any]) -> int:
    """Return the CPU threads that a stage's section of params.yaml gives it."""
    places = (section, section.get("training", {}), section.get("common", {}))
    return next((int(place["threads"]) for place in places if "threads" in place), 1)


def processes(section: Mapping[str, Any]) -> int:
    """Return the processes that a stage's section of params.yaml gives it."""
    places = (section.get("training", {}), section.get("common", {}))
    return next((int(place["processes"]) for place in places if "processes" in place), 1)


def put(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key in nested mappings; replace other values on the way by mappings."""
    *path, last = key.split(".")
    for part in path:
        if not isinstance(values.get(part), dict):
            values[part] = {}
        values = values[part]
    values[last] = value


def cut(stage: str, item: str | None, params: Mapping[str, Any], dvc: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of `params` that a stage's entry in `dvc` names, plus `run`, as nested mappings.

    The section `training` of all trainings is laid under the stage's own.
    """
    names = scope(params, dvc, stage, item)
    sliced: dict[str, Any] = {"run": params.get("run") or {}}
    for template in stage_entry(dvc, stage).get("params", []):
        key = resolve(template, names)
        put(sliced, key, lookup(params, key))
    shared = sliced.pop("training", None)
    return sliced if shared is None else {**sliced, stage: with_shared(shared, sliced.get(stage) or {})}


def stage_params(stage: str, item: str | None = None) -> dict[str, Any]:
    """Return the slice of params.yaml that dvc.yaml gives to a stage, plus `run`, as nested mappings."""
    return cut(stage, item, read_yaml(PARAMS), read_yaml(DVC))


def differences(key: str, old: Any, new: Any) -> Iterator[str]:
    """Yield a phrase for each parameter that differs between two nested mappings, with its new and old value."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*new, *(name for name in old if name not in new)]:
            yield from differences(f"{key}.{name}".lstrip("."), old.get(name, _ABSENT), new.get(name, _ABSENT))
    elif new is _ABSENT:
        yield f"{key} is gone, and was {json.dumps(old)}"
    elif old is _ABSENT:
        yield f"{key} is {json.dumps(new)}, and was not there"
    elif old != new:
        yield f"{key} is {json.dumps(new)}, and was {json.dumps(old)}"
