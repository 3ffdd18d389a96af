"""Find the commands of `darkroom` (`@command` in a file below `tools/`), print their help, and run them."""

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from typer import Typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from darkroom.kinds import imported

_PACKAGE = Path(__file__).parent


class Command(NamedTuple):
    """A command of the command line. `place` and `body` are MODULE:NAME below `darkroom`."""

    group: str
    name: str
    help: str
    body: str
    place: str


GROUPS = ("Data", "Train", "Sample", "Score and compare", "Environment")  # of the help, in this order
_MARK = re.compile(r"^@command\((.+?)\)\n(?:@[^\n]+\n)*(?:class|def) (\w+)", re.MULTILINE | re.DOTALL)


@cache
def commands() -> dict[str, Command]:
    """Return the functions and classes marked by `darkroom.tools.command`, by their names in the order of the help."""
    listed = []
    for path in (_PACKAGE / "tools").rglob("*.py"):
        module = ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)
        for words, name in _MARK.findall(path.read_text(encoding="utf-8")):
            group, command, help, *body = ast.literal_eval(f"({words})")
            listed.append(Command(group, command, help, "".join(body), f"{module}:{name}"))
    listed.sort(key=lambda command: (GROUPS.index(command.group), command.name))
    return {command.name: command for command in listed}


_HELP = {"help_option_names": ["-h", "--help"]}


def command_line(name: str) -> Any:
    """Return a command with its arguments and options."""
    app = Typer(add_completion=False)
    command = commands()[name]
    app.command(help=command.help, context_settings=_HELP)(imported(f"darkroom.{command.place}"))
    return get_command(app)


class _Group(TyperGroup):
    """Import the module of a command when the command is called, not for `--help`."""

    result: Any = None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, arguments = super().resolve_command(ctx, args)
        return name, command_line(str(name)), arguments

    def invoke(self, ctx: Any) -> None:
        """Run the command, and store its result."""
        result = super().invoke(ctx)
        body = commands()[ctx.invoked_subcommand].body
        self.result = imported(f"darkroom.{body}")(result) if body else result


def run(words: Sequence[str]) -> Any:
    """Run a command and return its result; None for `--help`.

    Raises:
        SystemExit: the command or an option is not valid, or it was interrupted.
    """
    listed = [
        TyperCommand(command.name, help=command.help, rich_help_panel=command.group) for command in commands().values()
    ]
    text = "Train image generators as one reproducible DAG."
    group = _Group(name="darkroom", commands=listed, help=text, no_args_is_help=True, context_settings=_HELP)
    try:
        group.main(args=words, prog_name="darkroom")
    except SystemExit as end:
        if end.code:
            raise
    return group.result
