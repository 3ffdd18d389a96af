"""Print the output of `darkroom params`, and write docs/reference/params.md, the reference of params.yaml."""

import difflib
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer import Argument, Option

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import read_params, whole
from darkroom.dag.stages import TRAININGS
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS, description
from darkroom.params.stage import read_yaml
from darkroom.params.training import SharedTraining, Training
from darkroom.tools import command
from darkroom.tools.editing import DEFAULT_VALUE, shown, value_of

REQUIRED = object()  # the default of a key that has none
ENTRY = "*"  # stands for the name of a part or of a U-Net

_PLAIN = {bool: "true or false", int: "integer", float: "number", str: "text", type(None): "null", Any: "any value"}
_BOUNDS = {"gt": "above {}", "ge": "at least {}", "lt": "below {}", "le": "at most {}", "multiple_of": "multiple of {}"}


@dataclass(frozen=True)
class Key:
    """One key of params.yaml."""

    name: str  # dotted; `*` stands for the names that a person gives, of parts and U-Nets
    default: Any  # REQUIRED: it has none. None for a section, whose keys are listed separately
    allowed: str  # its allowed values, in words; "" for a section
    description: str

    @property
    def is_section(self) -> bool:
        """Whether it is a section, whose keys are listed separately."""
        return not self.allowed


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """Yield the keys of a settings class, each section before its keys."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        described = Training if model is SharedTraining else model
        held, is_mapping = _held(field.annotation)
        text = description(described, name)
        if held is None:
            allowed = _allowed(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
            yield Key(path, _default(described.model_fields[name]), allowed, text)
            continue
        yield Key(path, None, "", text or (held.__doc__ or "").partition("\n")[0])
        yield from keys(held, f"{path}.{ENTRY}." if is_mapping else f"{path}.")


def _held(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the settings class of a key, None for a value; and whether the key is a mapping from names to settings."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        members = [_held(each) for each in get_args(annotation)]
        return next((each for each in members if each[0] is not None), (None, False))
    if get_origin(annotation) is dict:
        return _held(get_args(annotation)[1])[0], True
    return None, False


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return REQUIRED
    value = field.get_default(call_default_factory=True)
    return list(value) if isinstance(value, tuple) else value


def _allowed(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [_bound(each) for each in arguments[1:]]
        return ", ".join(filter(None, [_allowed(arguments[0]), *bounds]))
    if origin is Literal:
        return " or ".join([", ".join(map(str, arguments[:-1])), str(arguments[-1])]).removeprefix(" or ")
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_allowed, arguments)))
    if origin is list:
        return f"list of: {_entry(arguments[0])}"
    if origin is tuple:
        return f"{len(arguments)} values, each: {_allowed(arguments[0])}"
    if origin is dict:
        return "mapping"
    return _PLAIN.get(annotation, "mapping" if annotation is dict else str(annotation))


def _entry(annotation: Any) -> str:
    """Describe the entries of a list: values, or mappings with certain keys."""
    held, _ = _held(annotation)
    return _allowed(annotation) if held is None else f"mapping of {', '.join(held.model_fields)}"


def _bound(constraint: Any) -> str:
    """Describe a constraint of pydantic; "" if it does not restrict values."""
    if isinstance(constraint, FieldInfo):
        return ", ".join(filter(None, map(_bound, constraint.metadata)))
    if getattr(constraint, "pattern", None):
        return f"matching {constraint.pattern}"
    return ", ".join(
        text.format(value) for name, text in _BOUNDS.items() if (value := getattr(constraint, name, None)) is not None
    )


PAGE = Path("docs/reference/params.md")
_SHARED = {key.name: key.default for key in keys(Training)}
_HEAD = """# Parameters

All keys of params.yaml, generated by `darkroom params --write` from the settings classes. `*` stands for the name
of a part or of a U-Net. `darkroom params --all` prints the same list with your values.

A key that is not in params.yaml has its default. To set it, add it to its section, or use `++` for one experiment:
`dvc exp run -S '++train_tokenizer.vqgan.width=64'`. Without `++`, DVC answers "Could not override".

A training takes each key from the most specific place that sets it: the `training` of its kind of tokenizer or
generator, or of its U-Net; that of its stage; the section `training`; the default of its stage. Each key is listed
once, under `training`, and again under a stage with a different default. The defaults are for a few thousand colour
images of 32 pixels; params.yaml sets what differs for its scenes.
"""


@command("Train", "params", "List the keys of params.yaml: value, default, description.")
def params(
    prefix: Annotated[str | None, Argument(metavar="KEY", help="a stage, a section or a key; default: all")] = None,
    everything: Annotated[bool, Option("--all", help="also list keys that params.yaml does not set")] = False,
    is_page: Annotated[bool, Option("--check", help="check that docs/reference/params.md describes all keys")] = False,
    write: Annotated[bool, Option("--write", help="write docs/reference/params.md")] = False,
) -> str:
    """Return the keys of params.yaml with value, default, allowed values and description.

    Raises:
        DarkroomError: params.yaml is not valid, or the key does not exist; the message suggests the nearest one.
    """
    if is_page or write:
        return write_page(write)
    raw, values = read_yaml(PARAMS), read_params()
    entries = [(name, key) for key in keys(whole()) for name in _names(key.name, raw)]
    known = [name for name, _ in entries]
    if prefix is not None:
        entries = [(name, key) for name, key in entries if name == prefix or name.startswith(f"{prefix}.")]
    if not entries:
        raise DarkroomError(f"{PARAMS} has no key `{prefix}`{_hint(str(prefix), known)}")
    leaves = [(name, key) for name, key in entries if not key.is_section]
    standing = [(name, key) for name, key in leaves if value_of(raw, name) is not DEFAULT_VALUE]
    chosen = leaves if everything or not standing else standing
    lines = [line for name, key in chosen for line in _lines(name, key, raw, values)]
    if len(chosen) < len(leaves):
        lines += ["", f"{len(leaves) - len(chosen)} more keys have defaults: `darkroom params … --all` lists them."]
    if len(standing) < len(chosen):
        lines += ["", "- marks a key that is not in params.yaml: `dvc exp run -S '++KEY=VALUE'` adds it."]
    return "\n".join(lines)


def _hint(requested: str, known: list[str]) -> str:
    """Return a suggestion for a key that does not exist: the nearest keys."""
    last = {name: name.rpartition(".")[2] for name in known}
    words = difflib.get_close_matches(requested.rpartition(".")[2], sorted(set(last.values())), n=1, cutoff=0.75)
    # A typo in one part of a long key is nearest among the keys; in a word by itself, among the last parts.
    near = difflib.get_close_matches(requested, known, n=3) or [name for name in known if last[name] in words]
    return f"; did you mean {' or '.join(f'`{each}`' for each in near[:3])}?" if near else "."


def _names(name: str, raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the key of the schema once for each entry of params.yaml that its `*` stands for."""
    before, star, after = name.partition(f".{ENTRY}.")
    if not star:
        yield name
        return
    entries = value_of(raw, before)
    for entry in entries if isinstance(entries, Mapping) else ():
        yield f"{before}.{entry}.{after}"


def _lines(name: str, key: Key, raw: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    stands = value_of(raw, name) is not DEFAULT_VALUE
    stage, _, own = name.partition(".training.")
    shared = value_of(raw.get("training") or {}, own) if stage in TRAININGS and own else DEFAULT_VALUE
    if name.startswith("training."):
        value = value_of(raw, name)
        default = "default of each training" if value is DEFAULT_VALUE else f"default {_shown_default(key)}"
    else:
        value = value_of(values, name)
        default = f"default {_shown_default(key) if shared is DEFAULT_VALUE else f'{shown(shared)} (`training.{own}`)'}"
    text = shown(key.default if value is DEFAULT_VALUE else value)
    yield f"{' ' if stands else '-'} {name}: {text}"
    yield f"      {default}; {key.allowed}"
    yield f"      {key.description}"


def _shown_default(key: Key) -> str:
    return "none" if key.default is REQUIRED else shown(key.default)


def page() -> str:
    """Return the page: a table for each section."""
    parts = [_HEAD]
    for section, held in groupby(keys(whole()), key=lambda key: key.name.partition(".")[0]):
        heading, *rows = held
        parts.append(f"\n## {section}\n\n{heading.description}\n")
        if rows:
            parts.append("\n| key | default | values | |\n|---|---|---|---|\n")
            parts.append("".join(_row(key) for key in rows if _is_listed(key)))
    return "".join(parts)


def _is_listed(key: Key) -> bool:
    """Return whether a key differs from the section `training`; `init` is listed for the first stage only."""
    stage, _, own = key.name.partition(".training.")
    if not own or stage not in TRAININGS:
        return True
    return stage == TRAININGS[0] if own.startswith("init") else key.default != _SHARED[own]


def _row(key: Key) -> str:
    required = "by stage" if key.name.startswith("training.") else "required"
    default = "" if key.is_section else required if key.default is REQUIRED else f"`{shown(key.default)}`"
    allowed = re.sub(r"matching (\S+)", r"matching `\1`", key.allowed)  # else brackets are a link
    cells = [f"`{key.name}`", default, allowed, key.description]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def write_page(write: bool) -> str:
    """Write docs/reference/params.md, or check that it is up to date; return a line for the terminal.

    Raises:
        DarkroomError: the file is missing or out of date.
    """
    text = page().encode()
    if write:
        write_bytes(PAGE, text)
    elif not PAGE.is_file() or PAGE.read_bytes() != text:
        raise DarkroomError(f"{PAGE} does not match the settings classes: run `darkroom params --write` and commit it.")
    return f"{PAGE} describes every key of params.yaml."
