"""List the commands of `darkroom` by the groups of its help. Each command is a function next to its code."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from typer import Typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class Command(NamedTuple):
    """A command of the command line. `place` and `body` are MODULE:FUNCTION."""

    place: str
    help: str  # one sentence
    body: str | None = None  # is called with what `place` returns, the options; imported then, since it loads torch


GROUPS: Mapping[str, Mapping[str, Command]] = {
    "Data": {
        "init": Command(
            "tools.init.request:Request",
            "Inspect a dataset, benchmark this machine, and write params.yaml.",
            "tools.init.command:init",
        ),
        "data": Command("tools.verify.show:show", "Show counts, classes, sizes, captions and damage."),
        "verify": Command("tools.verify.verify:verify", "Check the data and every output in dvc.lock byte by byte."),
    },
    "Train": {
        "check": Command("tools.check:check", "Validate params.yaml, dvc.yaml and data folders, and repair dvc.lock."),
        "params": Command("tools.params:params", "List the keys of params.yaml: value, default, description."),
        "preset": Command("tools.preset:preset", "List the presets, or apply one to params.yaml."),
        "plan": Command("tools.plan.plan:plan", "Estimate the memory, disk space and time of the stale stages."),
        "tune": Command("tools.tune.command:tune", "Find settings that are faster at equal loss on this machine."),
        "why": Command("dag.why:why", "Show which parameter, input or function made a stage stale."),
        "times": Command("tools.times:times", "Show the start time and duration of each stage of the last run."),
    },
    "Sample": {
        "sample": Command(
            "tools.sample.command:command", "Sample images from texts or classes, or variations of images."
        ),
        "invert": Command(
            "tools.invert.request:Request",
            "Map images to noise by reversed DDIM or the reversed flow, and back.",
            "tools.invert.command:invert",
        ),
        "show": Command("tools.show:show", "Show an image in the terminal, or list the available ones."),
        "export": Command("tools.export.options:command", "Export the generator or the tokenizer for other programs."),
    },
    "Score and compare": {
        "score": Command(
            "tools.score.options:Request",
            "Score two folders of images, or published .npz files.",
            "tools.score.command:score",
        ),
        "scores": Command("tools.compare.table:scores", "Show all scores of a revision, with their standard errors."),
        "compare": Command("tools.compare.table:table", "Compare two revisions: do they differ by more than noise?"),
    },
    "Environment": {
        "cluster": Command(
            "tools.cluster:cluster", "Write a Snakemake profile with the memory and time of each stage."
        ),
        "doctor": Command("tools.doctor.examine:doctor", "Check the installation and this clone, and suggest fixes."),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def _function(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"darkroom.{module}"), name)
    return function


_HELP = {"help_option_names": ["-h", "--help"]}


class _Group(TyperGroup):
    """Import the module of a command when the command is called, not for `--help`."""

    result: Any = None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, arguments = super().resolve_command(ctx, args)
        app = Typer(add_completion=False)
        app.command(help=COMMANDS[str(name)].help, context_settings=_HELP)(_function(COMMANDS[str(name)].place))
        return name, get_command(app), arguments

    def invoke(self, ctx: Any) -> None:
        """Run the command, and store its result."""
        result = super().invoke(ctx)
        body = COMMANDS[ctx.invoked_subcommand].body
        self.result = result if body is None else _function(body)(result)


def run(words: Sequence[str]) -> Any:
    """Run a command and return its result; None for `--help`.

    Raises:
        SystemExit: the command or an option is not valid, or it was interrupted.
    """
    listed = [
        TyperCommand(name, help=command.help, rich_help_panel=title)
        for title, commands in GROUPS.items()
        for name, command in commands.items()
    ]
    text = "Train image generators as one reproducible DAG."
    group = _Group(name="darkroom", commands=listed, help=text, no_args_is_help=True, context_settings=_HELP)
    try:
        group.main(args=words, prog_name="darkroom")
    except SystemExit as end:
        if end.code:
            raise
    return group.result
