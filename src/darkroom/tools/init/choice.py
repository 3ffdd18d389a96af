"""A value that `darkroom init` chooses."""

from typing import Any, NamedTuple


class Choice(NamedTuple):
    """The value of a key, and why it is this one, in a few words; "": it follows from another."""

    value: Any
    reason: str = ""
