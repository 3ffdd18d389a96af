"""`darkroom preset`: lays a file of `presets/` over params.yaml, whose comments, order and style stay.

A preset means the same whatever was applied before: what any of them may change is first set back to the value of
`digits`, and taken out where `digits` has none, so that the default holds. Other keys of params.yaml stay.
"""

import difflib
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.params.yaml_text import parse_yaml
from darkroom.tools.cores import this_machine
from darkroom.tools.editing import DEFAULT_VALUE, laid_over, leaves, shown, value_of

PRESETS = Path("presets")
DEFAULT = "digits"


def names() -> list[str]:
    """Return the names of the presets, the default first."""
    return sorted((path.stem for path in PRESETS.glob("*.yaml")), key=lambda name: (name != DEFAULT, name))


def comment(name: str) -> list[str]:
    """Return the lines of comment at the head of a preset: what it is, what it needs, how long it takes."""
    lines = takewhile(lambda line: line.startswith("#"), _file(name).read_text().splitlines())
    return [line.lstrip("#").strip() for line in lines]


def _file(name: str) -> Path:
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}."
        raise DarkroomError(f"there is no preset `{name}` in {PRESETS}/; {hint}")
    return PRESETS / f"{name}.yaml"


def _own(name: str) -> dict[str, Any]:
    return dict(leaves(read_yaml(_file(name))))


def overlay(name: str) -> dict[str, Any]:
    """Return what a preset lays over params.yaml, by dotted key; DEFAULT_VALUE: the key is taken out.

    Raises:
        DarkroomError: no such preset; names the nearest.
    """
    own = _own(name)
    return {key: DEFAULT_VALUE for other in names() for key in _own(other)} | _own(DEFAULT) | own


def listing() -> str:
    """Return the presets and what they are, for a person."""
    return "\n\n".join("\n    ".join([name, *comment(name)]) for name in names())


def apply(name: str, fit: bool = False) -> str:
    """Lay a preset over params.yaml; return what changed, a line a key.

    Nothing is written unless what comes out is valid and fits together. With `fit` networks compute in fp32 where the
    preset says bf16 and this machine is no quicker in that.

    Raises:
        DarkroomError: no such preset, or params.yaml would not be valid.
    """
    values = read_yaml(PARAMS)
    found = {key: (value_of(values, key), new) for key, new in overlay(name).items()}
    found = {key: (old, new) for key, (old, new) in found.items() if (type(old), old) != (type(new), new)}
    device = (values.get("run") or {}).get("device", "auto")
    if fit and any(new == "bf16" for _, new in found.values()) and not this_machine(device).bf16:
        found = {key: (old, "fp32" if new == "bf16" else new) for key, (old, new) in found.items()}
    if not found:
        return f"{PARAMS} is `{name}` already."
    text = laid_over(PARAMS.read_text(), {key: new for key, (_, new) in found.items()})
    try:
        check(parse_yaml(text, PARAMS))
    except DarkroomError as error:
        raise DarkroomError(
            f"nothing was written: with the preset `{name}`, {error} Presets are laid over the committed params.yaml: "
            f"`git checkout {PARAMS}` brings it back."
        ) from None
    write_bytes(PARAMS, text.encode())
    width = max(map(len, found))
    return "\n".join(f"{key:<{width}}  {shown(old)} -> {shown(new)}" for key, (old, new) in found.items())


def preset(
    name: Annotated[str | None, Argument(help="a file of presets/, without .yaml; default: list them")] = None,
    fit: Annotated[
        bool, Option("--fit", help="fp32 in place of bf16 where this machine is not faster in bf16")
    ] = False,
) -> str:
    """Return the list of presets, or what one changes. Raises as `apply`."""
    return listing() if name is None else apply(name, fit)
