"""Run the command line: the stages that dvc.yaml calls, and the commands for users (see `commands.py`)."""

import argparse
import gc
import io
import locale
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from darkroom.dag.stages import FOREACH, STAGES, singular
from darkroom.errors import DarkroomError

_SHOWN = 200  # characters of an argument in an error


def _stage(words: Sequence[str]) -> None:
    """Run a stage."""
    stage = words[0]
    parser = argparse.ArgumentParser(prog=f"darkroom {stage}", description=f"Run the stage {stage}.")
    if section := FOREACH.get(stage):
        help = f"a name under `{section}` in params.yaml; default: from DVC_STAGE"
        parser.add_argument("item", nargs="?", metavar=singular(section), help=help)
    options = parser.parse_args(words[1:])
    item = _item(stage, getattr(options, "item", None))
    from darkroom.runner import run_stage

    run_stage(stage, item)


def _command(words: Sequence[str]) -> int:
    """Run a user command, print its result, and return the exit code."""
    from darkroom.commands import run

    result: Any = run(words)
    text, is_sound = result if isinstance(result, tuple) else (result, True)
    if isinstance(text, bool):
        return int(not text)
    for line in text if isinstance(text, Iterator) else [text] * (text is not None):
        print(line, flush=True)
    return int(not is_sound)


def _item(stage: str, item: str | None) -> str | None:
    """Return the entry of params.yaml that a stage runs for: the given name, or that in DVC_STAGE (STAGE@ITEM).

    DVC sets this variable, so commands need no names from params.yaml.

    Raises:
        DarkroomError: the stage runs once per entry, and no entry is given.
    """
    if stage in FOREACH and item is None:
        name, _, item = os.environ.get("DVC_STAGE", "").partition("@")
        if name != stage or not item:
            each = singular(FOREACH[stage])
            raise DarkroomError(f"the stage runs once per {each}: use `darkroom {stage} {each.upper()}`.")
    return item


def _require_root() -> None:
    """Check that the working folder is the root of a clone. Raises DarkroomError naming the folder to `cd` into."""
    from darkroom.params.section import PARAMS  # pydantic takes longer than all that `--help` needs
    from darkroom.params.stage import DVC

    if not any(path.is_file() for path in (DVC, PARAMS)):
        roots = [f"`cd {shlex.quote(str(folder))}`" for folder in Path.cwd().parents if (folder / DVC).is_file()]
        raise DarkroomError(f"run this in the root of your clone: {(roots or [f'no folder here has {DVC}'])[0]}.")


def _failed(command: str, text: str, words: Sequence[str]) -> int:
    """Print an error with long arguments shortened, and return the exit code."""
    for word in words:
        text = text.replace(word, word if len(word) <= _SHOWN else f"{word[:_SHOWN]}…")
    print(f"darkroom {command}: error: {text}", file=sys.stderr)
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 1 after printing an error."""
    if arguments is None and not sys.flags.utf8_mode and locale.getencoding() != "UTF-8":  # the default of `open`
        os.environ.setdefault("PYTHONIOENCODING", getattr(sys.stdout, "encoding", "utf-8"))
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    words = sys.argv[1:] if arguments is None else arguments
    command = words[0] if words else "--help"
    if any(re.fullmatch(r"(--[\w-]+=)?\s*", word) for word in words):
        _failed(command, "an argument is empty: remove it, or give it a value.", words)
        sys.exit(2)
    # Libraries emit it when they are imported; users cannot prevent it.
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
    # Two savings of 5 and 14 % of `darkroom check`: pydantic looks for plugins, and garbage is collected in imports.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if command not in STAGES:
        gc.set_threshold(50_000)
    try:
        copied = command == "sample" and any(Path("models").glob("*/manifest.json"))  # models without their clone
        if command != "score" and not copied and not {"-h", "--help"} & set(words):
            _require_root()
        if command in STAGES:
            _stage(words)
            code = 0
        else:
            code = _command(words)
        print(end="", flush=True)  # here, where an error of the output can be caught
    except ModuleNotFoundError as error:
        if str(error.name).startswith("darkroom"):
            raise
        text = f"{error.name} is not installed for {sys.executable}: activate the environment that `make` set up "
        text += "(`source .venv/bin/activate`), then `dvc checkout` and try again."
        return _failed(command, text, words)
    except DarkroomError as error:
        return _failed(command, str(error), words)
    except OSError as error:
        if command in STAGES and not isinstance(error, BrokenPipeError):
            raise
        if error.filename is None:  # an error of stdout: avoid a second one when Python exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # `| head` has closed the pipe
            return 1
        text = f"{error.filename}: {error.strerror}." if error.filename else f"{error}."
        return _failed(command, text, words)
    return code
