"""A finding of `darkroom doctor`."""

from functools import partial
from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One finding.

    level: `ok`; `note`: worth knowing; `fault`: something that is needed does not work.
    subject: what was checked.
    text: what was found and, where something is wrong, what to do.
    """

    level: Literal["ok", "note", "fault"]
    subject: str
    text: str


ok, note, problem = partial(Finding, "ok"), partial(Finding, "note"), partial(Finding, "fault")
