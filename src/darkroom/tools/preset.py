"""`darkroom preset`: apply a file of `presets/` to params.yaml, preserving comments, order and style.

The result does not depend on presets applied earlier: each key that any preset sets is first reset to its value in
`digits`, or removed if `digits` has none, so that the default applies. Other keys of params.yaml are unchanged. The
committed params.yaml is the preset `shapes`.
"""

from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import leaves, read_yaml
from darkroom.params.yaml_text import parse_yaml
from darkroom.tools import command, nearest
from darkroom.tools.cores import this_machine
from darkroom.tools.editing import DEFAULT_VALUE, laid_over, shown, value_of

PRESETS = Path("presets")
DEFAULT = "shapes"  # the committed params.yaml
BASE = "digits"  # the preset that all others change


def names() -> list[str]:
    """Return the names of the presets, the default first."""
    return sorted((path.stem for path in PRESETS.glob("*.yaml")), key=lambda name: (name != DEFAULT, name))


def comment(name: str) -> list[str]:
    """Return the comment at the top of a preset: its description, requirements and duration."""
    lines = takewhile(lambda line: line.startswith("#"), _file(name).read_text().splitlines())
    return [line.lstrip("#").strip() for line in lines]


def _file(name: str) -> Path:
    known = names()
    if name not in known:
        raise DarkroomError(f"{PRESETS}/ has no preset `{name}`; {nearest(name, known)}")
    return PRESETS / f"{name}.yaml"


def _own(name: str) -> dict[str, Any]:
    return dict(leaves(read_yaml(_file(name))))


def overlay(name: str) -> dict[str, Any]:
    """Return the values that a preset sets, by dotted key; DEFAULT_VALUE removes the key.

    Raises:
        DarkroomError: the preset does not exist; the message suggests the nearest one.
    """
    own = _own(name)
    return {key: DEFAULT_VALUE for other in names() for key in _own(other)} | _own(BASE) | own


def listing() -> str:
    """Return the presets with their descriptions, as text."""
    return "\n\n".join("\n    ".join([name, *comment(name)]) for name in names())


def apply(name: str, fit: bool = False) -> str:
    """Apply a preset to params.yaml; return the changes, one line per key.

    Nothing is written unless the result is valid and consistent. With `fit`, networks use fp32 where the preset has
    bf16 and this machine is not faster in bf16.

    Raises:
        DarkroomError: the preset does not exist, or params.yaml would not be valid.
    """
    values, new = read_yaml(PARAMS), overlay(name)
    device = (values.get("run") or {}).get("device", "auto")
    if fit and "bf16" in new.values() and not this_machine(device).bf16:
        new = {key: "fp32" if value == "bf16" else value for key, value in new.items()}
    changes = {key: (value_of(values, key), value) for key, value in new.items()}
    changes = {key: (old, value) for key, (old, value) in changes.items() if (type(old), old) != (type(value), value)}
    if not changes:
        return f"{PARAMS} already matches the preset `{name}`."
    own = {key: new[key] for key in _own(name)}
    try:
        text = laid_over(laid_over(PARAMS.read_text(), overlay(BASE)), own)  # one order of keys, whatever was before
        check(parse_yaml(text, PARAMS))
    except DarkroomError as error:
        raise DarkroomError(
            f"nothing was written: with the preset `{name}`, {error} Presets are applied to the committed params.yaml: "
            f"`git checkout {PARAMS}` restores it."
        ) from None
    write_bytes(PARAMS, text.encode())
    width = max(map(len, changes))
    return "\n".join(f"{key:<{width}}  {shown(old)} -> {shown(new)}" for key, (old, new) in changes.items())


@command("Train", "preset", "List the presets, or apply one to params.yaml.")
def preset(
    name: Annotated[str | None, Argument(help="a file in presets/, without .yaml; default: list the presets")] = None,
    fit: Annotated[bool, Option("--fit", help="use fp32 instead of bf16 if bf16 is not faster here")] = False,
) -> str:
    """Return the list of presets, or the changes by one. Raises the errors of `apply`."""
    return listing() if name is None else apply(name, fit)
