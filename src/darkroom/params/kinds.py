"""Sections in which `kind` chooses one of several sections, each with keys of the training of its own."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, create_model, field_validator

from darkroom.params.section import Model, Overrides, Section
from darkroom.params.training import Training

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


class Kind(Section):
    """The section of a kind.

    training: any keys of a training but `threads`, `processes` and `init`, which are read before the kind is known.
    """

    training: Overrides = Field(default_factory=dict)
    """The keys of the stage's `training` that have another value for this kind."""

    @field_validator("training")
    @classmethod
    def _known(cls, values: Overrides) -> Overrides:
        return require_known(values, OWN_TRAINING, "a kind")


class OfKinds(Section):
    """A choice among kinds, and its training. Only the chosen kind's section is a dependency."""

    kind: str
    training: Training
    """The keys of `training` that have another value here."""

    @property
    def chosen(self) -> Any:
        """The section of the chosen kind."""
        return getattr(self, self.kind)

    @property
    def own_training(self) -> Training:
        """The settings of the training: `training`, with what the chosen kind has otherwise."""
        return merged(self.training, self.chosen.training, f"{self.kind}.training")

    def _misfits(self) -> Iterator[str]:
        if self.chosen is None:
            yield f"kind is {self.kind}, and the section `{self.kind}` is missing"
        for name in type(self).model_fields:  # of each kind that is there, not only of the chosen one
            section = getattr(self, name)
            if isinstance(section, Kind) and section.training:
                merged(self.training, section.training, f"{name}.training")


def of_kinds(sections: Mapping[str, type[Kind]], what: str) -> Any:
    """Return a class of sections with `kind`, one of the names of `sections`, and each of them, which may be missing.

    `what` the kinds are of.
    """
    description = f"Kind of {what}; the section of its name holds its settings."
    kind: Any = (Literal[tuple(sections)], Field(description=description))
    fields: dict[str, Any] = {name: (section | None, None) for name, section in sections.items()}
    return create_model("Chosen", __base__=OfKinds, kind=kind, **fields)
