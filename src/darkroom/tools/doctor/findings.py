"""The findings of `darkroom doctor`: one line each."""

from collections.abc import Iterable
from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One finding.

    level: `ok`; `note`: worth knowing; `problem`: something that is needed does not work.
    subject: what was checked.
    text: what was found and, where something is wrong, what to do.
    """

    level: Literal["ok", "note", "fault"]
    subject: str
    text: str


def ok(subject: str, text: str) -> Finding:
    """Return a finding of the level `ok`."""
    return Finding("ok", subject, text)


def note(subject: str, text: str) -> Finding:
    """Return a finding of the level `note`."""
    return Finding("note", subject, text)


def problem(subject: str, text: str) -> Finding:
    """Return a finding of the level `problem`."""
    return Finding("fault", subject, text)


def lines(findings: Iterable[Finding]) -> str:
    """Return the findings, one line each, aligned."""
    rows = list(findings)
    width = max((len(row.subject) for row in rows), default=0)
    return "\n".join(f"{row.level:<5}  {row.subject:<{width}}  {' '.join(row.text.split())}" for row in rows)
