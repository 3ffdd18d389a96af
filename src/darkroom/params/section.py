"""Sections of params.yaml: their types, the messages for invalid values, and the descriptions of keys."""

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, TypeVar, Union, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic._internal._docs_extraction import extract_docstrings_from_cls

from darkroom.errors import DarkroomError

PARAMS = Path("params.yaml")
NO_FILE = "data/none"  # the committed empty file that stands for an optional input that is not there


class Section(BaseModel):
    """A section of params.yaml: frozen, typed, without unknown keys, and with keys that fit each other.

    READ_WITH: keys that are read only where another key has one of some values: {key: (other key, *values)}; without
        values, where that key is neither empty nor 0. Elsewhere they keep their defaults.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    READ_WITH: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    def _misfits(self) -> Iterator[str]:
        """Yield what else of the section does not fit, one sentence each; those of the bases come first."""
        yield from ()

    @model_validator(mode="after")
    def _fit(self) -> Self:
        for owner in reversed(type(self).__mro__):
            own = vars(owner)
            misfits = own["_misfits"](self) if "_misfits" in own else ()
            for sentence in chain(self._unread(owner), misfits):
                raise ValueError(sentence)
        return self

    def _unread(self, owner: type[Any]) -> Iterator[str]:
        """Yield why keys in the table `READ_WITH` of a class that have values of their own are not read."""
        for key, (other, *values) in vars(owner).get("READ_WITH", {}).items():
            found, (path, _, name) = attrgetter(other)(self), key.rpartition(".")
            section = attrgetter(path)(self) if path else self
            kinds = (type(section), owner if section is self else type(section))
            if getattr(section, name) in [None, *(kind.model_fields[name].default for kind in kinds)]:
                continue
            if not values and found in (None, NO_FILE, 0):
                yield f"{key} is only read with {other}: set {other}, or remove {key}"
            there = found if isinstance(found, set) else {found}
            if values and not there & set(values):
                known, given = (" or ".join(sorted(map(_written, each))) for each in (values, there))
                yield f"{key} is only read with {other} {known}, but {other} is {given}: remove {key}"


def _written(value: object) -> str:
    """Return a value as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


Positive = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[tuple[Fraction, Fraction], Field(strict=False)]
Warmup = Annotated[int, Field(ge=0)]
# Keys with another value; left empty is none, as everywhere in params.yaml.
Overrides = Annotated[dict[str, Any], BeforeValidator(lambda given: {} if given is None else given)]
PartName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
PartNames = Annotated[list[PartName], Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

Model = TypeVar("Model", bound=BaseModel)


def _holder(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the settings class that contains the key at `location`, or would contain it; None: there is none."""
    current: Any = model
    for name in location[:-1]:
        known = isinstance(current, type) and issubclass(current, BaseModel)
        field = current.model_fields.get(name) if known else None
        if field is not None:
            current = field.annotation
        candidates = [current, *getattr(current, "__args__", ())]
        models = [found for found in candidates if isinstance(found, type) and issubclass(found, BaseModel)]
        if not models:
            return None
        current = models[0]
    found: type[BaseModel] = current
    return found


def described(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Return the description of the key at `location` after a colon; a full stop if it has none."""
    holder, name = _holder(model, location), str(location[-1])
    text = description(holder, name) if holder is not None and name in holder.model_fields else ""
    return f": {text}" if text else "."


def _sentence(model: type[BaseModel], fault: Mapping[str, Any], where: str) -> str:
    location = tuple(part for part in fault["loc"] if part != "[key]")
    key = ".".join(str(part) for part in ([where] if where else []) + list(location))
    if fault["type"] == "extra_forbidden":
        holder = _holder(model, location)
        allowed = [] if holder is None else list(holder.model_fields)
        near = difflib.get_close_matches(str(location[-1]), allowed, n=1, cutoff=0.5)
        hint = f"did you mean `{near[0]}`?" if near else f"valid here: {', '.join(allowed)}."
        return f"{PARAMS}: unknown key `{key}`; {hint}"
    if fault["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
        near = difflib.get_close_matches(str(fault["input"]), allowed, n=1, cutoff=0.5)
        hint = f"; did you mean `{near[0]}`?" if near else "."
        return f"{PARAMS}: `{key}` is {fault['input']!r}, but must be one of {', '.join(allowed)}{hint}"
    if fault["type"] == "missing":
        return f"{PARAMS}: `{key}` is missing{described(model, location)}"
    # A fault between keys belongs to their section, which would fill the screen.
    value = "" if isinstance(fault["input"], Mapping) and fault["type"] == "value_error" else f" is {fault['input']!r}"
    # YAML reads 2024, 2024-01-31, yes and 007 as something else than a text.
    bare = fault["type"] == "string_type" and not isinstance(fault["input"], Mapping | list | None)
    return f"{PARAMS}: `{key}`{value}: {fault['msg'].removeprefix('Value error, ')}{'; put it in quotes' * bare}."


def _faults(model: type[BaseModel], error: ValidationError) -> list[dict[str, Any]]:
    """Return the faults, with those of a union of types joined into one.

    pydantic puts such a type behind the key.
    """
    found: dict[tuple[int | str, ...], dict[str, Any]] = {}
    for each in error.errors():
        fault, key = dict(each), each["loc"][:-1]
        holder = _holder(model, key) if key else None
        field = holder.model_fields.get(str(key[-1])) if holder is not None else None
        if field is None or get_origin(field.annotation) not in (Union, UnionType) or _holder(model, each["loc"]):
            found[each["loc"]] = fault
        elif key in found:
            found[key]["msg"] += f"; or: {fault['msg']}"
        else:
            found[key] = fault | {"loc": key, "type": "union"}
    return list(found.values())


def validate(model: type[Model], values: Mapping[str, Any], where: str = "") -> Model:
    """Validate `values` as `model`; `where` is their key in params.yaml.

    Raises:
        DarkroomError: one sentence for each fault: the key, the value, what is allowed, the nearest valid name.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise DarkroomError("\n".join(_sentence(model, fault, where) for fault in _faults(model, error))) from None


# ---------------------------------------------------------------------------------------------------------------------
# Descriptions of the keys: strings below the fields of the settings classes, read from the source only when wanted


def description(model: type[BaseModel], field: str) -> str:
    """Return the description of a field of a settings class, "" where it has none.

    It is the string below the field in the class or in the nearest base that declares it, or what `Field` says.
    """
    texts = (_below_fields(owner).get(field) for owner in model.__mro__ if issubclass(owner, BaseModel))
    return next(filter(None, texts), model.model_fields[field].description) or ""


@cache
def _below_fields(owner: type[BaseModel]) -> dict[str, str]:
    """Return for each field of a class the string below it, on one line."""
    # As `use_attribute_docstrings` does, which costs each process that reads params.yaml a fifth of a second.
    texts = extract_docstrings_from_cls(owner, use_inspect=True) if owner is not BaseModel else {}
    return {field: " ".join(text.split()) for field, text in texts.items()}
