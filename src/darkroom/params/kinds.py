"""Sections whose `kind` chooses one of several subsections, each with its own training keys."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, create_model

from darkroom.params.section import Model, Overrides, Section
from darkroom.params.training import Training

# The keys that a kind can override: the others are read before the kind is known, or are dependencies.
OWN_TRAINING = frozenset(Training.model_fields) - {"threads", "processes", "init"}


def require_known(values: dict[str, Any], own: Collection[str], owner: str) -> dict[str, Any]:
    """Return `values` after checking that `owner` can override each key.

    Raises:
        ValueError: a key cannot be overridden; suggests the nearest one that can.
    """
    if unknown := sorted(values.keys() - set(own)):
        near = difflib.get_close_matches(unknown[0], own, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else f": {', '.join(sorted(own))}"
        raise ValueError(f"`{unknown[0]}` is not a key that {owner} can override{hint}")
    return values


def merged(common: Model, own: Mapping[str, Any], section: str) -> Model:
    """Return `common` with the values of `own` in place of its own.

    Raises:
        ValueError: together they are not valid; names the key below `section`.
    """
    try:
        return type(common).model_validate({**common.model_dump(), **own})
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in (section, *fault["loc"]))
        raise ValueError(f"`{key}`: {fault['msg'].removeprefix('Value error, ')}") from None


class Kind(Section):
    """The section of a kind.

    training: any keys of a training but `threads`, `processes` and `init`, which are read before the kind is known.
    """

    training: Annotated[Overrides, AfterValidator(partial(require_known, own=OWN_TRAINING, owner="a kind"))] = {}
    """Keys that override the stage's `training` for this kind."""


class OfKinds(Section):
    """A choice among kinds, and its training. Only the chosen kind's section is a dependency."""

    kind: str
    training: Training
    """Keys that override the shared section `training`."""

    @property
    def chosen(self) -> Any:
        """The section of the chosen kind."""
        return getattr(self, self.kind)

    @property
    def own_training(self) -> Training:
        """The training settings: `training` with the overrides of the chosen kind."""
        return merged(self.training, self.chosen.training, f"{self.kind}.training")

    def _misfits(self) -> Iterator[str]:
        if self.chosen is None:
            yield f"kind is {self.kind}, but the section `{self.kind}` is missing"
        for name in type(self).model_fields:  # of each existing section, not only of the chosen one
            section = getattr(self, name)
            if isinstance(section, Kind) and section.training:
                merged(self.training, section.training, f"{name}.training")


def of_kinds(sections: Mapping[str, type[Kind]], noun: str) -> Any:
    """Return a section class with `kind`, one of the names in `sections`, and an optional field for each section.

    `noun` completes "Kind of", for the description.
    """
    description = f"Kind of {noun}; its settings are in the section of that name."
    kind: Any = (Literal[tuple(sections)], Field(description=description))
    fields: dict[str, Any] = {name: (section | None, None) for name, section in sections.items()}
    return create_model("Chosen", __base__=OfKinds, kind=kind, **fields)
