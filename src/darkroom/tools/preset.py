"""`darkroom preset`: lays a file of `presets/` over params.yaml, whose comments, order and style stay.

A preset means the same whatever was applied before: what any of them may change is first set back to the value of
`digits`, and taken out where `digits` has none, so that the default holds. Other keys of params.yaml stay.
"""

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import CommentMark
from ruamel.yaml.tokens import CommentToken

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check
from darkroom.dag.stages import FOREACH
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, lookup, read_yaml, stage_entry
from darkroom.params.yaml_text import parse_yaml
from darkroom.tools.init.machine import this_machine

PRESETS = Path("presets")
DEFAULT = "digits"
DEFAULT_VALUE = object()  # of a key that does not stand in params.yaml

_TEMPLATE = re.compile(r"\$\{[^}]*\}")

# What the grammar of `dvc exp run -S` (Hydra's) reads as text without quotes.
_PLAIN = re.compile(r"[A-Za-z][\w./-]*(?: [\w./-]+)*")
_READ_AS_OTHER = {"true", "false", "null", "nan", "inf"}


def names() -> list[str]:
    """Return the names of the presets, the default first."""
    return sorted((path.stem for path in PRESETS.glob("*.yaml")), key=lambda name: (name != DEFAULT, name))


def comment(name: str) -> list[str]:
    """Return the lines of comment at the head of a preset: what it is, what it needs, how long it takes."""
    lines = iter(_file(name).read_text().splitlines())
    found = []
    while (line := next(lines, "")).startswith("#"):
        found.append(line.lstrip("#").strip())
    return found


def _file(name: str) -> Path:
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}."
        raise DarkroomError(f"there is no preset `{name}` in {PRESETS}/; {hint}")
    return PRESETS / f"{name}.yaml"


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of everything in nested mappings that is no mapping."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _own(name: str) -> dict[str, Any]:
    """Return the values of a preset's file, by dotted key."""
    return dict(leaves(read_yaml(_file(name))))


def overlay(name: str) -> dict[str, Any]:
    """Return what a preset lays over params.yaml, by dotted key; DEFAULT_VALUE: the key is taken out.

    Raises:
        DarkroomError: no such preset; names the nearest.
    """
    own = _own(name)
    return {key: DEFAULT_VALUE for other in names() for key in _own(other)} | _own(DEFAULT) | own


def changes(name: str, values: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what a preset changes in the values of params.yaml: old and new by dotted key.

    DEFAULT_VALUE stands for a key that is not there.

    Raises:
        DarkroomError: no such preset, or it names a part or a U-Net that params.yaml does not have.
    """
    found = {}
    for key, new in overlay(name).items():
        _require_entry(name, key, values)
        old = _value(values, key)
        if (type(old), old) != (type(new), new):
            found[key] = (old, new)
    return found


def _value(values: Any, key: str) -> Any:
    """Return the value under a dotted key, DEFAULT_VALUE where there is none."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return DEFAULT_VALUE
        values = values[part]
    return values


def _require_entry(name: str, key: str, values: Mapping[str, Any]) -> None:
    """Refuse a preset that names a part or a U-Net of the committed params.yaml which is gone."""
    for over in FOREACH.values():
        if key.startswith(f"{over}."):
            entry = key.removeprefix(f"{over}.").partition(".")[0]
            try:
                lookup(values, f"{over}.{entry}")
            except DarkroomError as error:
                raise DarkroomError(
                    f"the preset `{name}` does not fit: {error} Presets are laid over the committed params.yaml: bring "
                    "its parts back (`git checkout params.yaml`), or change by hand what the preset says."
                ) from None


def _yaml() -> YAML:
    """Return a reader and writer with the settings of `dvc exp run -S`: the file stays one that DVC would write."""
    yaml = YAML()
    yaml.default_flow_style = False
    return yaml


def laid_over(text: str, new: Mapping[str, Any]) -> str:
    """Return the text of params.yaml with other values under some dotted keys, with its comments and order."""
    yaml = _yaml()
    document = yaml.load(text)
    for key, value in new.items():
        if value is DEFAULT_VALUE:
            _take_out(document, key)
            continue
        *path, last = key.split(".")
        place = document
        for part in path:
            if part not in place:
                place.insert(0, part, CommentedMap())
            if not place[part]:
                _hand_on(place, part)
            place = place[part]
        if last in place:
            place[last] = value
        else:
            place.insert(0, last, value)  # behind the last key stand the comments of the next section
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _take_out(document: Any, key: str, behind: Any = None) -> None:
    """Remove a key, and the mappings that are empty then, but for those that dvc.yaml names."""
    path, _, last = key.rpartition(".")
    place = _value(document, path)
    if not isinstance(place, CommentedMap) or last not in place:
        return
    own = place.ca.items.pop(last, None)
    behind = own[2] if own is not None and own[2] is not None else behind
    del place[last]
    if not place and "." in path and not _is_named(path):
        _take_out(document, path, behind)
    elif place:
        if behind is not None:
            place.ca.items.setdefault(list(place)[-1], [None, None, behind, None])
    else:  # behind `{}` comments belong to the next key
        above, _, name = path.rpartition(".")
        holder = _value(document, above) if above else document
        holder[name] = CommentedMap()
        holder[name].fa.set_flow_style()  # a comment of its own stands behind `{}`, not before
        if behind is not None:
            _put_before_next(holder, name, behind.value.partition("\n")[2])


def _hand_on(holder: CommentedMap, name: str) -> None:
    """Give what stands below the comment of an empty mapping to the next key: the mapping will have values there."""
    own = holder.ca.items.get(name)
    if own is None or own[2] is None or name not in dict(pairwise(holder)):
        return
    first, _, rest = own[2].value.partition("\n")
    own[2].value = f"{first}\n"
    if rest:
        _put_before_next(holder, name, rest)


def _put_before_next(holder: CommentedMap, name: str, text: str) -> None:
    """Put lines of comments and empty lines before the key that follows one."""
    following = dict(pairwise(holder))[name]
    tokens = [CommentToken(line, CommentMark(0)) for line in text.splitlines(keepends=True)]
    holder.ca.items.setdefault(following, [None, None, None, None])[1] = tokens


def _is_named(key: str) -> bool:
    """Return whether dvc.yaml lists a key under `params`."""
    dvc = read_yaml(DVC)
    named = [template for stage in dvc["stages"] for template in stage_entry(dvc, stage).get("params", [])]
    return any(re.fullmatch(_TEMPLATE.sub("[^.]+", template), key) for template in named)


def shown(value: Any) -> str:
    """Return a value as one line for a person, as YAML means it."""
    if value is DEFAULT_VALUE:
        return "(default)"
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value


def flag(key: str, value: Any, there: bool = True) -> str:
    """Return the option of `dvc exp run` that sets a key, or takes it out, quoted for a shell.

    Args:
        key: dotted.
        value: what it is set to; DEFAULT_VALUE: it is taken out.
        there: whether it stands in params.yaml; Hydra adds a key only where `++` says so.
    """
    change = f"~{key}" if value is DEFAULT_VALUE else f"{key if there else '++' + key}={_literal(value)}"
    return f"-S {shlex.quote(change)}"


def _literal(value: Any) -> str:
    """Return a value in the grammar of Hydra's overrides, in which an unquoted comma would make a sweep."""
    if isinstance(value, list):
        return f"[{','.join(map(_literal, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value.lower() in _READ_AS_OTHER):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return shown(value)


def listing() -> str:
    """Return the presets and what they are, for a person."""
    return "\n\n".join("\n    ".join([name, *comment(name)]) for name in names())


def flags(name: str) -> str:
    """Return the command that runs a preset as an experiment, and leaves params.yaml as it is until then."""
    options = [flag(key, new, old is not DEFAULT_VALUE) for key, (old, new) in changes(name, read_yaml(PARAMS)).items()]
    return " ".join(["dvc exp run", *options])


def apply(name: str, fit: bool = False) -> str:
    """Lay a preset over params.yaml; return what changed, a line a key.

    Nothing is written unless what comes out is valid and fits together.

    Args:
        name: of the preset.
        fit: whether networks compute in fp32 where the preset says bf16 and this machine is no quicker in that.

    Raises:
        DarkroomError: no such preset, or params.yaml would not be valid.
    """
    found = changes(name, read_yaml(PARAMS))
    device = (read_yaml(PARAMS).get("run") or {}).get("device", "auto")
    if fit and any(new == "bf16" for _, new in found.values()) and not this_machine(device).bf16:
        found = {key: (old, "fp32" if new == "bf16" else new) for key, (old, new) in found.items()}
    if not found:
        return f"{PARAMS} is `{name}` already."
    text = laid_over(PARAMS.read_text(), {key: new for key, (_, new) in found.items()})
    try:
        check(parse_yaml(text, PARAMS))
    except DarkroomError as error:
        raise DarkroomError(f"nothing was written: with the preset `{name}`, {error}") from None
    write_bytes(PARAMS, text.encode())
    width = max(map(len, found))
    return "\n".join(f"{key:<{width}}  {shown(old)} -> {shown(new)}" for key, (old, new) in found.items())
