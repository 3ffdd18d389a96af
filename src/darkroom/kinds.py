"""Tables of kinds: a readable literal lists the kinds that parameters can choose; only the chosen one is loaded."""

# No effect on any output: loads what a table names; the table itself and what it names are part of the fingerprint

import importlib
from collections.abc import Iterator, Mapping
from typing import Any


def imported(place: str) -> Any:
    """Import and return the object of "MODULE:NAME"."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


class Kinds:
    """The modules of the parts of each kind.

    The fingerprint of code (`darkroom.dag.fingerprint`) reads such tables, and the calls of `load`, from the source, so
    all arguments are literals. It puts the code of the chosen kind's parts into the files that `parts` names below
    `build/code/`: an edit of another kind makes nothing stale.

    Args:
        chosen_by: the key of params.yaml that chooses, which dvc.yaml lists under `params` of the stage `code`; "": no
            single key chooses, and a stage that loads a part of any kind depends on the code of all.
        package: the package of the places.
        parts: name of each part, and what runs it: a stage, or an artifact that several stages open.
        kinds: name of each kind, and "MODULE:NAME" of each part that it has.
    """

    def __init__(
        self, package: str, parts: Mapping[str, str], kinds: Mapping[str, Mapping[str, str]], chosen_by: str = ""
    ) -> None:
        self.chosen_by, self.package, self.parts, self.kinds = chosen_by, package, parts, kinds

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __contains__(self, kind: object) -> bool:
        return kind in self.kinds

    def has(self, part: str, kind: str) -> bool:
        """Return whether a kind has a part."""
        assert part in self.parts, f"no part {part}"
        return part in self.kinds[kind]

    def load(self, part: str, kind: str) -> Any:
        """Import and return a part of a kind; `part` is a literal, which the fingerprint of code reads."""
        assert self.has(part, kind), f"{kind} has no {part}"
        return imported(f"{self.package}.{self.kinds[kind][part]}")
