"""What the doctor finds: one line each."""

from collections.abc import Iterable
from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One finding.

    level: `ok`; `note`, which a person should know; `fault`, which something that is needed fails on.
    subject: what was looked at.
    text: what was found and, where something is wrong, what to do.
    """

    level: Literal["ok", "note", "fault"]
    subject: str
    text: str


def ok(subject: str, text: str) -> Finding:
    """Return that all is well."""
    return Finding("ok", subject, text)


def note(subject: str, text: str) -> Finding:
    """Return what stops nothing."""
    return Finding("note", subject, text)


def fault(subject: str, text: str) -> Finding:
    """Return what something that is needed fails on."""
    return Finding("fault", subject, text)


def lines(findings: Iterable[Finding]) -> str:
    """Return the findings, one line each, aligned."""
    rows = list(findings)
    width = max((len(row.subject) for row in rows), default=0)
    return "\n".join(f"{row.level:<5}  {row.subject:<{width}}  {' '.join(row.text.split())}" for row in rows)
