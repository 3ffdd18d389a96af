"""A hook of MkDocs that writes the page of commands from their options, `make docs`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

PAGE = "reference/commands.md"


def on_files(files: Files, config: Any) -> Files:
    """Add the generated page."""
    files.append(File.generated(config, PAGE, content="\n".join(commands_page())))
    return files


def commands_page() -> Iterator[str]:
    """Yield the lines of the page: a section for each command, with a table of its options."""
    from darkroom.commands import GROUPS, command_line, commands

    yield "# Commands\n\nRun them in the root of your clone; `score` and `sample` also run elsewhere.\n"
    yield "![The list of commands in a terminal](../screens/help.svg)\n"
    for group in GROUPS:
        yield f"## {group}\n"
        for command in commands().values():
            if command.group != group:
                continue
            yield f"### darkroom {command.name}\n\n{command.help}\n"
            rows = [row for option in command_line(command.name).params if (row := _row(option))]
            if rows:
                yield "| argument or option | values | meaning | default |\n|---|---|---|---|"
                yield from rows
                yield ""


def _row(option: Any) -> str:
    """Return the row of an argument or option: names, values, meaning, default; "" for `--help`."""
    if option.hidden or "--help" in option.opts:
        return ""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.param_type_name == "argument":
        names = f"`{(option.metavar or option.name).upper()}`"
    values = ", ".join(map(str, get_args(option.type_descriptor.annotation)))  # of a Literal
    default = "required" if option.required else "" if option.default in (None, False, True, ()) else option.default
    meaning = (option.help or "").replace("|", "\\|")
    return f"| {names} | {values} | {meaning} | {default} |"
