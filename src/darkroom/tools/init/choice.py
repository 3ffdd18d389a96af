"""A value that `darkroom init` chooses."""

# No effect on any output: proposes settings

from typing import Any, NamedTuple


class Choice(NamedTuple):
    """The value of a key, and why it is this one, in a few words; "": it follows from another."""

    value: Any
    reason: str = ""
