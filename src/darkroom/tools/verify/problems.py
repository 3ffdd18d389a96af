"""The errors that `darkroom verify` reports, and the parts of params.yaml that it and `darkroom data` take."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from darkroom.errors import DarkroomError
from darkroom.params.parts import Parts
from darkroom.params.section import PARAMS, Section, validate
from darkroom.params.stage import lookup, read_yaml


@dataclass(frozen=True)
class Problem:
    """One error in the data.

    path: the file, or the name of another object with the error.
    what: what is wrong.
    remedy: what to do.
    detail: more on it.
    """

    path: Path | str
    what: str
    remedy: str
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.path}: {self.what}{detail}: {self.remedy}."


class _Params(Section):
    parts: Parts


def read_parts(names: Sequence[str]) -> list[str]:
    """Return the parts of params.yaml among `names`; all where none is named.

    Raises:
        DarkroomError: params.yaml is missing or not valid, or has no such part; the message suggests the nearest name.
    """
    parts = list(validate(_Params, {"parts": lookup(read_yaml(PARAMS), "parts")}).parts)
    for name in names:
        if name not in parts:
            near = difflib.get_close_matches(name, parts, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(parts)}."
            raise DarkroomError(f"{PARAMS} has no part `{name}`; {hint}")
    return [part for part in parts if not names or part in names]
