"""Commands for users, each in the file or the folder of its name."""

import difflib
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T", bound=Callable[..., object])


def command(group: str, name: str, help: str, body: str = "") -> Callable[[_T], _T]:
    """Mark a function, or a class of options, as the command `name`; `help` is one sentence.

    `darkroom.commands` reads these calls from the source, so that `darkroom --help` imports no command: all arguments
    are literals. `body` is "MODULE:FUNCTION" below `darkroom`, which is imported and called with the options once they
    are valid, since it loads torch.
    """
    return lambda function: function


def nearest(name: str, known: Sequence[str], listed: str = "known:") -> str:
    """Return the end of a message on an unknown name: the nearest known one, or all of them, after `listed`."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"{listed} {', '.join(known)}."
