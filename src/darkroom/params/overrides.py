"""Sections that hold, for one of several, keys of a section that all of them share."""

import difflib
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from darkroom.params.section import Model
from darkroom.params.training import Training

# Keys with another value; left empty is none, as everywhere in params.yaml.
Overrides = Annotated[dict[str, Any], BeforeValidator(lambda given: {} if given is None else given)]

# What a training may have for itself: the others are read before it is known which one it is, or are dependencies.
OWN_TRAINING = frozenset(Training.model_fields) - {"threads", "processes", "init"}


def require_known(values: dict[str, Any], own: Collection[str], who: str) -> dict[str, Any]:
    """Return `values`, after checking that each key is one that `who` may have for itself.

    Raises:
        ValueError: one is not; with the nearest that is.
    """
    if unknown := sorted(values.keys() - set(own)):
        near = difflib.get_close_matches(unknown[0], own, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else f": {', '.join(sorted(own))}"
        raise ValueError(f"`{unknown[0]}` is none of the keys that {who} may have for itself{hint}")
    return values


def merged(common: Model, own: Mapping[str, Any], where: str) -> Model:
    """Return `common`, with what `own` has otherwise.

    Raises:
        ValueError: together they are not valid; names the key below `where`.
    """
    try:
        return type(common).model_validate({**common.model_dump(), **own})
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in (where, *fault["loc"]))
        raise ValueError(f"`{key}`: {fault['msg'].removeprefix('Value error, ')}") from None
