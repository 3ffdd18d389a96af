"""`darkroom preset`: lays a file of `presets/` over params.yaml, whose comments, order and style stay.

A preset means the same whatever was applied before: what any of them may change is first set back to the values of
`digits`, which holds them all. Other keys of params.yaml stay as the person left them.
"""

# No effect on any output: writes params.yaml, which the stages depend on key by key

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import lookup, read_yaml
from darkroom.params.yaml_text import parse_yaml

PRESETS = Path("presets")
DEFAULT = "digits"

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


def overlay(name: str) -> dict[str, Any]:
    """Return what a preset lays over params.yaml, by dotted key: the default's values, and its own over them.

    Raises:
        DarkroomError: no such preset; names the nearest.
    """
    own = dict(leaves(read_yaml(_file(name))))
    return dict(leaves(read_yaml(_file(DEFAULT)))) | own


def changes(name: str, values: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what a preset changes in the values of params.yaml: old and new by dotted key.

    Raises:
        DarkroomError: no such preset, or it names a key that params.yaml does not have.
    """
    found = {}
    for key, new in overlay(name).items():
        try:
            old = lookup(values, key)
        except DarkroomError as error:
            raise DarkroomError(
                f"the preset `{name}` does not fit: {error} Presets are laid over the committed params.yaml: bring "
                "its parts back (`git checkout params.yaml`), or change by hand what the preset says."
            ) from None
        if (type(old), old) != (type(new), new):
            found[key] = (old, new)
    return found


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
        *path, last = key.split(".")
        place = lookup(document, ".".join(path)) if path else document
        place[last] = value
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def shown(value: Any) -> str:
    """Return a value as one line for a person, as YAML means it."""
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value


def flag(key: str, value: Any) -> str:
    """Return the option of `dvc exp run` that sets a key, quoted for a shell."""
    return f"-S {shlex.quote(f'{key}={_literal(value)}')}"


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
    options = [flag(key, new) for key, (_, new) in changes(name, read_yaml(PARAMS)).items()]
    return " ".join(["dvc exp run", *options])


def apply(name: str) -> str:
    """Lay a preset over params.yaml; return what changed, a line a key.

    Nothing is written unless what comes out is valid and fits together.

    Raises:
        DarkroomError: no such preset, or params.yaml would not be valid.
    """
    found = changes(name, read_yaml(PARAMS))
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
