"""A finding of `darkroom doctor`."""

from functools import partial
from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One finding.

    level: `ok`; `note`: worth knowing; `fault`: something that is needed does not work.
    """

    level: Literal["ok", "note", "fault"]
    subject: str  # what was checked
    text: str  # what was found and, where something is wrong, what to do


ok, note, problem = partial(Finding, "ok"), partial(Finding, "note"), partial(Finding, "fault")
