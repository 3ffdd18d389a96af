"""Commands for users, each in the file or the folder of its name."""

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T", bound=Callable[..., object])


def command(group: str, name: str, help: str, body: str = "") -> Callable[[_T], _T]:
    """Mark a function, or a class of options, as the command `name`; `help` is one sentence.

    `darkroom.commands` reads these calls from the source, so that `darkroom --help` imports no command: all arguments
    are literals. `body` is "MODULE:FUNCTION" below `darkroom`, which is imported and called with the options once they
    are valid, since it loads torch.
    """
    return lambda function: function
