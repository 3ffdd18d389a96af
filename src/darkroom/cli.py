"""The command line: a subcommand a stage, and those for people. Nothing heavy is imported before it is needed."""

import argparse
import codecs
import difflib
import importlib
import io
import locale
import os
import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from darkroom.dag.stages import FOREACH, STAGES, TRAININGS, singular
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC
from darkroom.tools.init.request import Request as Init
from darkroom.tools.init.request import add_options as add_init_options
from darkroom.tools.score.options import add_options as add_score_options
from darkroom.tools.score.options import require_paths

_PLAIN = {"±": "+/-", "…": "...", "█": "#", "▀": '"', "→": "->", "×": "x"}
_SHOWN = 200  # characters of an argument in an error


class _Parser(argparse.ArgumentParser):
    """Names what is near where a choice is none, in place of all that there are."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        said, _, choices = message.partition(" (choose from ")
        given = re.search(r"invalid choice: '([^']*)'", said)
        near = difflib.get_close_matches(given[1], re.findall(r"[\w-]+", choices), n=1) if given else []
        super().error(f"{said}; did you mean {near[0]}?" if near else message)

    def add(self, name: str, help: str, **more: Any) -> None:
        """Add an argument."""
        self.add_argument(name, help=help, **more)

    def flag(self, name: str, help: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, help=help, action="store_true")

    def several(self, name: str, help: str, **more: Any) -> None:
        """Add an option that may come several times."""
        self.add_argument(name, help=help, **{"action": "append", "default": [], **more})


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = _Parser(prog="darkroom", description="Train image generators as one reproducible DAG.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    new = commands.add_parser
    of = new(
        "check", help="validate params.yaml, dvc.yaml and the folders of parts, and mend a dvc.lock that was cut short"
    )
    hint = "add to .dvcignore what DVC cannot hash in the folders of parts, or in one folder"
    of.add("--leave-out", hint, nargs="?", const="", metavar="FOLDER")
    of = new("dag", help="check that docs/dag.svg shows the stages of dvc.yaml, or draw it")
    of.flag("--write", "draw it")
    of = new("compare", help="the scores of two revisions, and whether they differ by more than noise")
    hint = "a commit, branch, tag or experiment, or several of other seeds: A,B,C; HEAD"
    of.add("old", hint, nargs="?", default="HEAD")
    of.add("new", "the same; the working tree", nargs="?", default="workspace")
    of.flag("--seeds", "with the experiments that differ in seeds alone")
    of.flag("--all", "also the scores that are equal in both, or do not compare")
    of.flag("--md", "print Markdown")
    of = new("scores", help="all scores of a revision, with their standard errors")
    of.add("revision", "a commit, branch, tag or experiment; here", nargs="?", default="workspace")
    of.flag("--md", "print Markdown")
    add_score_options(new("score", help="the scores of any two folders of images, or of .npz files as others publish"))
    add_init_options(new("init", help="look at your images, measure this machine, and write params.yaml for both"))
    of = new("plan", help="memory, disk and time of what is out of date, measured here in seconds")
    of.add("stages", "stages to plan, stale or not; without: those that are stale", nargs="*")
    of.flag("--all", "all stages, stale or not")
    of.flag("--json", "print JSON")
    of = new("tune", help="try here which switches make a training quicker and change nothing else")
    of.add("stages", "stages that train; without: all that are trained", nargs="*")
    of.flag("--write", "set in params.yaml what pays")
    new("times", help="when each stage of the last run began, how long it took, what the end waited for")
    of = new("why", help="which parameter, input or function made a stage stale")
    of.add("stage", "a stage, or one run of it: STAGE@PART, STAGE@UNET")
    new("doctor", help="check the installation and this clone, and say what to do")
    of = new("params", help="the keys of params.yaml: value, default, description")
    of.add("key", "a stage, a section or a key; without: all", nargs="?")
    of.flag("--all", "also the keys that do not stand in params.yaml")
    of.flag("--check", "check that docs/params.md describes all keys")
    of.flag("--write", "write docs/params.md")
    of = new("preset", help="list the presets, or lay one over params.yaml")
    of.add("name", "a file of presets/, without .yaml; the list", nargs="?")
    of.flag("--flags", "print it as `dvc exp run -S …`, and change nothing")
    of.flag("--fit", "fp32 for bf16, where this machine is no quicker in that")
    _add_verify(new("verify", help="check the data and every output in dvc.lock byte by byte"))
    _add_data(new("data", help="show what is in the data"))
    _add_sample(new("sample", help="make images of texts or of classes, or variations of images"))
    of = new("show", help="draw a picture in the terminal, or list those that there are")
    hint = "an image file, a folder with a grid, or a training: its newest grid; without: a list"
    of.add("what", hint, nargs="?")
    of.add("--width", "characters in a row; those of the terminal", type=int)
    _add_invert(new("invert", help="carry images to noise by reversed DDIM or the reversed flow, and back"))
    of = new("export", help="write models/generator, a DiT, or models/tokenizer for other programs")
    of.add("--model", "which; %(default)s", default="generator", choices=["generator", "tokenizer"])
    of.add("--out", "a new folder; %(default)s", type=Path, default="export", metavar="DIR")
    of.add("--format", "of the weights; %(default)s", default="diffusers", choices=["diffusers", "pt", "safetensors"])
    of.add("--weights", "of the generator; %(default)s", default="ema", choices=["ema", "raw"])
    of.add("--license", "for the page, as the Hub names it; %(default)s", default="other")
    for stage in STAGES:
        of = new(stage, help=f"the body of the stage {stage}, as dvc.yaml calls it")
        if over := FOREACH.get(stage):
            of.add("item", f"a name under `{over}` in params.yaml; from DVC_STAGE", nargs="?", metavar=singular(over))
        if stage in TRAININGS:
            of.flag("--dry-run", "print what it would do, and stop")
    return top


def _add_verify(of: _Parser) -> None:
    of.add("parts", "parts of params.yaml; without: all, and all outputs", nargs="*", metavar="PART")
    of.flag("--remote", "also read tars that lie behind URLs")


def _add_data(data: _Parser) -> None:
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_verify(actions.add_parser("verify"))  # its name before it was `darkroom verify`
    of = actions.add_parser("show", help="print counts, classes, sizes, captions and damage, and write a grid")
    of.add("parts", "parts of params.yaml; without: all", nargs="*", metavar="PART")
    of.add("--split", "images of this split alone", choices=["train", "val", "test"])
    of.add("--grid", "where the grid is written; %(default)s", type=Path, default="logs/data/grid.png", metavar="FILE")
    of.add("--images", "images in the grid, 0: no grid; %(default)s", type=int, default=36)
    of.flag("--quarantine", "list every sample that something was wrong with")
    of.flag("--json", "print JSON")


def _add_sample(of: _Parser) -> None:
    of.several("--text", "what to make images of; may come several times")
    of.several("--text-file", "a file with a text a line; may come several times", metavar="FILE")
    hint = "what draws texts: models/generator, or prior and decoder; by default the former where it reads texts"
    of.add("--by", hint, choices=["generator", "decoder"])
    of.several("--embedding-of", "an image to make variations of; may come several times", metavar="FILE")
    hint = "with --embedding-of: an image, white where the others are filled in (RePaint)"
    of.add("--mask", hint, metavar="FILE")
    of.several("--labels", "classes, by name or number: models/generator", metavar="CLASS,…")
    of.add("--images", "images of each; %(default)s", type=int, default=4)
    hint = "of all noise; `sample_text.seed`, of models/generator `sample_generator.common.seed`"
    of.add("--seed", hint, type=int)
    classes = of.add_argument_group("of models/generator, in place of what `sample_generator` in params.yaml says")
    classes.add_argument("--steps", help="steps of the solver")
    classes.add_argument("--guidance", type=float, help="scale of guidance; 1: none")
    classes.add_argument("--solver", help="the solver; it fits what was trained")
    hint = "ema, raw, a .safetensors file, or a folder with a model or a checkpoint"
    classes.add_argument("--weights", metavar="WEIGHTS", help=hint)
    classes.add_argument("--sigma-rel", type=float, help="width of the average, rebuilt from the kept ones")
    of.add("--out", "where the grid is written; a name under logs/sample/", metavar="FILE.png")


def _add_invert(of: _Parser) -> None:
    """Add the options of `darkroom invert`."""
    of.add("--split", "stored images of this split; %(default)s", choices=["train", "val", "test"], default="test")
    of.add("--images", "how many, drawn of the split; %(default)s", type=int, default=8)
    of.several("--key", "the stored image of this key; may come several times", dest="keys", metavar="KEY")
    hint = "image files in place of stored images"
    of.several("--from", hint, dest="files", metavar="FILE", action="extend", nargs="+")
    of.several("--labels", "their classes, in place of their own: one for all, or one an image", metavar="CLASS,…")
    of.several("--text", "their captions, one for all or one an image; may come several times")
    of.several("--to-label", "a row of the same noise as other classes", metavar="CLASS,…")
    of.several("--to-text", "a row of the same noise by another text; may come several times", metavar="TEXT")
    of.add("--steps", "steps of the solver, there and back; those of `sample_generator`")
    of.add("--solver", "ddim, euler or heun; ddim of Gaussian diffusion, euler of a flow")
    of.add("--guidance", "scale of guidance there and back; %(default)s: none", type=float, default=1.0)
    hint = "that of --to-label and --to-text; that of `sample_generator`"
    of.add("--edit-guidance", hint, type=float, metavar="SCALE")
    of.add("--weights", "ema, raw, a .safetensors file, or a folder with a model or a checkpoint")
    hint = "where the grid is written, and a table and the noise beside it; a name under logs/invert/"
    of.add("--out", hint, metavar="FILE.png")


# What a command calls, MODULE:FUNCTION, and the options that are its arguments, in their order.
_CALLS = {
    "compare": ("tools.compare.table:table", "old", "new", "md", "seeds", "all"),
    "dag": ("dag.graph:dag", "write"),
    "data": ("tools.verify.show:show", "parts", "split", "grid", "images", "quarantine", "json"),
    "doctor": ("tools.doctor.examine:doctor",),
    "export": ("tools.export.command:export", "out", "format", "license", "weights"),
    "export --model tokenizer": ("tools.export.command:export_tokenizer", "out", "format", "license"),
    "params": ("tools.params:params", "key", "all"),
    "params --write": ("tools.params:write_page", "write"),
    "plan": ("tools.plan.plan:plan", "stages", "all", "json"),
    "preset": ("tools.preset:apply", "name", "fit"),
    "preset --flags": ("tools.preset:flags", "name"),
    "preset: the list": ("tools.preset:listing",),
    "scores": ("tools.compare.table:scores", "revision", "md"),
    "show": ("tools.show:show", "what", "width"),
    "times": ("tools.times:times",),
    "tune": ("tools.tune.command:tune", "stages", "write"),
    "verify": ("tools.verify.verify:verify", "parts", "remote"),
    "why": ("dag.why:why", "stage"),
}


def _call(place: str, *arguments: Any) -> Any:
    """Return what a function of this package, MODULE:FUNCTION, returns; its module is imported here."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"darkroom.{module}"), name)(*arguments)


def _variant(options: argparse.Namespace) -> str:
    """Return the key of a command in `_CALLS`."""
    command: str = options.command
    if command == "data" and options.action == "verify":
        return "verify"
    if command == "export" and options.model == "tokenizer":
        return "export --model tokenizer"
    if command == "params" and (options.check or options.write):
        return "params --write"
    if command == "preset" and (options.flags or options.name is None):
        return "preset --flags" if options.name else "preset: the list"
    return command


def _text(options: argparse.Namespace) -> Any:
    """Return what a command prints, of those whose arguments are not single options; None: of another."""
    if options.command == "check":
        if mended := _call("dag.lock_file:mend"):
            print(mended)
        checked = _call("check.check:check", None, True)
        return f"darkroom check: {checked}{_call('check.check:check_sources', options.leave_out)}"
    if options.command == "init":
        return _call("tools.init.command:init", Init.of(options))
    if options.command == "invert":
        return _call("tools.invert.command:invert", options)
    if options.command == "sample":
        return _sample(options)
    if options.command == "score":
        require_paths(options)  # before torch is loaded
        from darkroom.tools.score.command import score
        from darkroom.tools.score.options import Request

        return score(Request.of(options))
    return None


def _run(options: argparse.Namespace) -> int:
    """Run a command, print what it returns, and return the exit code."""
    if options.command in STAGES:
        if getattr(options, "dry_run", False):
            print(_call("tools.dry_run:dry_run", options.command, _item(options)), end="")
        else:
            _call("runner:run_stage", options.command, _item(options))
        return 0
    if (text := _text(options)) is not None:
        print(text)
        return 0
    key = _variant(options)
    place, *names = _CALLS[key]
    result = _call(place, *(getattr(options, name) for name in names))
    if key == "verify":
        return int(not result)
    if key == "tune":
        for line in result:
            print(line, flush=True)
        return 0
    text, sound = result if key == "doctor" else (result, True)
    print(f"darkroom {options.command}: {text}" if key in ("dag", "params --write") else text)
    return int(not sound)


def _sample(options: argparse.Namespace) -> str:
    """Write the grid of `darkroom sample`, and return a line for the terminal."""
    from darkroom.tools.sample.classes import Overrides, reads_texts
    from darkroom.tools.sample.command import sample, sample_generator, texts_of

    texts = texts_of(options.text, options.text_file)
    overrides = Overrides(**{name: getattr(options, name) for name in Overrides._fields})
    if options.labels:
        if texts or options.embedding_of or options.mask:
            raise DarkroomError(
                "--labels are of classes, --text of texts, --embedding-of and --mask of the decoder: one call each."
            )
        return sample_generator("class", options.labels, options.images, options.out, overrides)
    texts_alone = texts and not (options.embedding_of or options.mask)
    if texts_alone and (options.by == "generator" or (options.by is None and reads_texts())):
        return sample_generator("text", texts, options.images, options.out, overrides)
    if options.by == "generator":
        raise DarkroomError("--by generator draws texts: give --text, and not --embedding-of, which the decoder draws.")
    named = {name: value for name, value in overrides._asdict().items() if value is not None and name != "seed"}
    if given := [f"--{name.replace('_', '-')}" for name in named]:
        raise DarkroomError(
            f"{', '.join(given)}: read with --labels or --by generator only; the decoder has `sample_decoder`."
        )
    return sample(texts, options.embedding_of, options.images, options.seed, options.out, options.mask)


def _item(options: argparse.Namespace) -> str | None:
    """Return the entry of params.yaml that a stage is to run for: as given, or as DVC_STAGE says (STAGE@ITEM).

    DVC sets that variable, and so no name from params.yaml stands in a command.

    Raises:
        DarkroomError: the stage runs once for each of several, and nobody names one.
    """
    stage, item = options.command, getattr(options, "item", None)
    if stage in FOREACH and item is None:
        name, _, item = os.environ.get("DVC_STAGE", "").partition("@")
        if name != stage or not item:
            each = singular(FOREACH[stage])
            raise DarkroomError(f"it runs once for each {each} of params.yaml: `darkroom {stage} {each.upper()}`.")
    return item


def _require_root(command: str) -> None:
    """Check that the working folder is the root of a clone. Raises DarkroomError naming the folder to `cd` into."""
    if command != "score" and not any(path.is_file() for path in (DVC, PARAMS)):
        roots = [f"`cd {shlex.quote(str(folder))}`" for folder in Path.cwd().parents if (folder / DVC).is_file()]
        raise DarkroomError(f"run this in the root of your clone: {(roots or [f'no folder here holds {DVC}'])[0]}.")


def _encodable(error: Any) -> tuple[str, int]:
    """Return what is printed in place of a character that the encoding of the terminal lacks."""
    return _PLAIN.get(error.object[error.start], "?"), error.start + 1


def _failed(command: str, text: str, words: Sequence[str]) -> int:
    """Print an error, in which long arguments are cut, and return the exit code."""
    for word in words:
        text = text.replace(word, word if len(word) <= _SHOWN else f"{word[:_SHOWN]}…")
    print(f"darkroom {command}: error: {text}", file=sys.stderr)
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 1 after one sentence on what is wrong."""
    if arguments is None and not sys.flags.utf8_mode and locale.getencoding() != "UTF-8":  # in which files are read
        os.environ.setdefault("PYTHONIOENCODING", getattr(sys.stdout, "encoding", "utf-8"))
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    codecs.register_error("darkroom", _encodable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="darkroom")
    words = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(words)
    if any(re.fullmatch(r"(--[\w-]+=)?\s*", word) for word in words):
        parser().error("an argument is empty: leave it out, or give it a value")
    # Of libraries, while they are imported; nobody who runs a stage can do anything about it.
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
    try:
        _require_root(options.command)
        code = _run(options)
        print(end="", flush=True)  # here, where an error of the output can be caught
    except ModuleNotFoundError as error:
        if str(error.name).startswith("darkroom"):
            raise
        text = f"{error.name} is not installed for {sys.executable}: activate the environment that `make` set up "
        text += "(`source .venv/bin/activate`), then `dvc checkout` and try again."
        return _failed(options.command, text, words)
    except DarkroomError as error:
        return _failed(options.command, str(error), words)
    except OSError as error:
        if options.command in STAGES and not isinstance(error, BrokenPipeError):
            raise
        if error.filename is None:  # of the output, and not to be met again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # `| head` has seen enough
            return 1
        text = f"{error.filename}: {error.strerror}." if error.filename else f"{error}."
        return _failed(options.command, text, words)
    return code
