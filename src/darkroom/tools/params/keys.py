"""The keys of params.yaml as the settings classes declare them."""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from darkroom.params.section import description
from darkroom.params.training import SharedTraining, Training

REQUIRED = object()  # the default of a key that has none
ENTRY = "*"  # stands for the name of a part or of a U-Net

_PLAIN = {bool: "true or false", int: "integer", float: "number", str: "text", type(None): "null", Any: "any value"}
_BOUNDS = {"gt": "above {}", "ge": "at least {}", "lt": "below {}", "le": "at most {}", "multiple_of": "multiple of {}"}


@dataclass(frozen=True)
class Key:
    """One key of params.yaml."""

    name: str  # dotted; `*` stands for the names that a person gives, of parts and U-Nets
    default: Any  # REQUIRED: it has none. Of a section: what it holds is listed by itself
    allowed: str  # what its values are, in words; "" for a section
    description: str

    @property
    def is_section(self) -> bool:
        """Whether it holds further keys, which are listed by themselves."""
        return not self.allowed


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """Yield the keys of a settings class, each section before what it holds."""
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
    """Return the settings class that a key holds, None where it holds a value; and whether it holds several by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        found = [_held(each) for each in get_args(annotation)]
        return next((each for each in found if each[0] is not None), (None, False))
    if get_origin(annotation) is dict:
        return _held(get_args(annotation)[1])[0], True
    return None, False


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return REQUIRED
    found = field.get_default(call_default_factory=True)
    return list(found) if isinstance(found, tuple) else found


def _allowed(annotation: Any) -> str:
    """Return in words what the values of a type are."""
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
    """Return in words what the entries of a list are: values, or mappings with certain keys."""
    held, _ = _held(annotation)
    return _allowed(annotation) if held is None else f"mapping of {', '.join(held.model_fields)}"


def _bound(constraint: Any) -> str:
    """Return in words what a constraint of pydantic demands; "" for one that says nothing of values."""
    if isinstance(constraint, FieldInfo):
        return ", ".join(filter(None, map(_bound, constraint.metadata)))
    if getattr(constraint, "pattern", None):
        return f"matching {constraint.pattern}"
    return ", ".join(
        text.format(value) for name, text in _BOUNDS.items() if (value := getattr(constraint, name, None)) is not None
    )
