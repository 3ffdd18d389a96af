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
NO_FILE = "data/none"  # the committed empty file in place of an optional input


class Section(BaseModel):
    """A section of params.yaml: frozen, typed, without unknown keys, and with keys that fit each other.

    READ_WITH: keys that are read only where another key has one of some values: {key: (other key, *values)}; without
        values, where that key is neither empty nor 0. Elsewhere they keep their defaults.

    The default of a field that is a section is made by `model_construct`, which does not build the class when its
    module is imported.
    """

    # `defer_build`: a class is built when it is first used, which few commands do with all of them.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    READ_WITH: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    def _misfits(self) -> Iterator[str]:
        """Yield one sentence for each rule of the section that is broken; those of base classes come first."""
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
        """Yield a sentence for each key in `READ_WITH` of a class that is set but not read."""
        for key, (other, *values) in vars(owner).get("READ_WITH", {}).items():
            current, (path, _, name) = attrgetter(other)(self), key.rpartition(".")
            section = attrgetter(path)(self) if path else self
            kinds = (type(section), owner if section is self else type(section))
            if getattr(section, name) in [None, *(kind.model_fields[name].default for kind in kinds)]:
                continue
            if not values and current in (None, NO_FILE, 0):
                yield f"{key} is only read with {other}: set {other}, or remove {key}"
            current_values = current if isinstance(current, set) else {current}
            if values and not current_values & set(values):
                allowed, actual = (" or ".join(sorted(map(_written, each))) for each in (values, current_values))
                yield f"{key} is only read with {other} {allowed}, but {other} is {actual}: remove {key}"


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
# Keys with other values; an empty entry is no key, as everywhere in params.yaml.
Overrides = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]
PartName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
PartNames = Annotated[list[PartName], Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

Model = TypeVar("Model", bound=BaseModel)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the settings class in the type of a field: itself, in a union, or of the values of a mapping."""
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)), None)


def _holder(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the settings class that contains the key at `location`, or would contain it, or None."""
    holder = model
    for name in location[:-1]:
        if (field := holder.model_fields.get(str(name))) is not None:
            if (inner := model_of(field.annotation)) is None:
                return None
            holder = inner
    return holder


def described(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Return the description of the key at `location` after a colon; a full stop if it has none."""
    holder, name = _holder(model, location), str(location[-1])
    text = description(holder, name) if holder is not None and name in holder.model_fields else ""
    return f": {text}" if text else "."


def _sentence(model: type[BaseModel], fault: Mapping[str, Any], root: str) -> str:
    location = tuple(part for part in fault["loc"] if part != "[key]")
    key = ".".join(str(part) for part in ([root] if root else []) + list(location))
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
    # A fault between keys belongs to their section, whose value would fill the screen.
    value = "" if isinstance(fault["input"], Mapping) and fault["type"] == "value_error" else f" is {fault['input']!r}"
    # YAML reads 2024, 2024-01-31, yes and 007 as values other than strings.
    bare = fault["type"] == "string_type" and not isinstance(fault["input"], Mapping | list | None)
    return f"{PARAMS}: `{key}`{value}: {fault['msg'].removeprefix('Value error, ')}{'; put it in quotes' * bare}."


def _faults(model: type[BaseModel], error: ValidationError) -> list[dict[str, Any]]:
    """Return the faults, with those of a union of types joined into one.

    pydantic puts such a type behind the key.
    """
    faults: dict[tuple[int | str, ...], dict[str, Any]] = {}
    for each in error.errors():
        fault, key = dict(each), each["loc"][:-1]
        holder = _holder(model, key) if key else None
        field = holder.model_fields.get(str(key[-1])) if holder is not None else None
        if field is None or get_origin(field.annotation) not in (Union, UnionType) or _holder(model, each["loc"]):
            faults[each["loc"]] = fault
        elif key in faults:
            faults[key]["msg"] += f"; or: {fault['msg']}"
        else:
            faults[key] = fault | {"loc": key, "type": "union"}
    return list(faults.values())


def validate(model: type[Model], values: Mapping[str, Any], root: str = "") -> Model:
    """Validate `values` as `model`; `root` is their key in params.yaml.

    Raises:
        DarkroomError: one sentence for each fault: the key, the value, what is allowed, the nearest valid name.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise DarkroomError("\n".join(_sentence(model, fault, root) for fault in _faults(model, error))) from None


# ---------------------------------------------------------------------------------------------------------------------
# Descriptions of the keys: strings below the fields of the settings classes, read from the source only when needed


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
