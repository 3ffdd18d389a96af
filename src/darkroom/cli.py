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
from collections.abc import Callable, Sequence
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


_SEVERAL: dict[str, Any] = {"action": "append", "default": []}


def _adder(parser: Any) -> Callable[..., None]:
    """Return what adds an option, by its name and help, to a parser or a group."""

    def add(option: str, help: str, **more: Any) -> None:
        parser.add_argument(option, help=help, **more)

    return add


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = _Parser(prog="darkroom", description="Train image generators as one reproducible DAG.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    checked = commands.add_parser(
        "check", help="validate params.yaml, dvc.yaml and the folders of parts, and mend a dvc.lock that was cut short"
    )
    leave_out = "add to .dvcignore what DVC cannot hash in the folders of parts, or in one folder"
    checked.add_argument("--leave-out", nargs="?", const="", metavar="FOLDER", help=leave_out)
    picture = commands.add_parser("dag", help="check that docs/dag.svg shows the stages of dvc.yaml, or draw it")
    picture.add_argument("--write", action="store_true", help="draw it")
    versus = commands.add_parser(
        "compare", help="the scores of two revisions, and whether they differ by more than noise"
    )
    add = _adder(versus)
    several = "a commit, branch, tag or experiment, or several of other seeds: A,B,C; HEAD"
    add("old", several, nargs="?", default="HEAD")
    add("new", "the same; the working tree", nargs="?", default="workspace")
    add("--seeds", "with the experiments that differ in seeds alone", action="store_true")
    add("--all", "also the scores that are equal in both, or do not compare", action="store_true")
    add("--md", "print Markdown", action="store_true")
    told = commands.add_parser("scores", help="all scores of a revision, with their standard errors")
    told.add_argument("revision", nargs="?", default="workspace", help="a commit, branch, tag or experiment; here")
    told.add_argument("--md", action="store_true", help="print Markdown")
    add_score_options(
        commands.add_parser("score", help="the scores of any two folders of images, or of .npz files as others publish")
    )
    add_init_options(
        commands.add_parser("init", help="look at your images, measure this machine, and write params.yaml for both")
    )
    ahead = commands.add_parser("plan", help="memory, disk and time of what is out of date, measured here in seconds")
    ahead.add_argument("stages", nargs="*", help="stages to plan, stale or not; without: those that are stale")
    ahead.add_argument("--all", action="store_true", help="all stages, stale or not")
    ahead.add_argument("--json", action="store_true", help="print JSON")
    tuned = commands.add_parser("tune", help="try here which switches make a training quicker and change nothing else")
    tuned.add_argument("stages", nargs="*", help="stages that train; without: all that are trained")
    tuned.add_argument("--write", action="store_true", help="set in params.yaml what pays")
    commands.add_parser(
        "times", help="when each stage of the last run began, how long it took, what the end waited for"
    )
    reason = commands.add_parser("why", help="which parameter, input or function made a stage stale")
    reason.add_argument("stage", help="a stage, or one run of it: STAGE@PART, STAGE@UNET")
    commands.add_parser("doctor", help="check the installation and this clone, and say what to do")
    explained = commands.add_parser("params", help="the keys of params.yaml: value, default, description")
    explained.add_argument("key", nargs="?", help="a stage, a section or a key; without: all")
    explained.add_argument("--all", action="store_true", help="also the keys that do not stand in params.yaml")
    explained.add_argument("--check", action="store_true", help="check that docs/params.md describes all keys")
    explained.add_argument("--write", action="store_true", help="write docs/params.md")
    preset = commands.add_parser("preset", help="list the presets, or lay one over params.yaml")
    preset.add_argument("name", nargs="?", help="a file of presets/, without .yaml; the list")
    preset.add_argument("--flags", action="store_true", help="print it as `dvc exp run -S …`, and change nothing")
    preset.add_argument("--fit", action="store_true", help="fp32 for bf16, where this machine is no quicker in that")
    _add_verify(commands.add_parser("verify", help="check the data and every output in dvc.lock byte by byte"))
    _add_data(commands.add_parser("data", help="show what is in the data"))
    _add_sample(commands.add_parser("sample", help="make images of texts or of classes, or variations of images"))
    shown = commands.add_parser("show", help="draw a picture in the terminal, or list those that there are")
    what = "an image file, a folder with a grid, or a training: its newest grid; without: a list"
    shown.add_argument("what", nargs="?", help=what)
    shown.add_argument("--width", type=int, help="characters in a row; those of the terminal")
    _add_invert(
        commands.add_parser("invert", help="carry images to noise by reversed DDIM or the reversed flow, and back")
    )
    given = commands.add_parser("export", help="write models/generator, a DiT, or models/tokenizer for other programs")
    given.add_argument("--model", default="generator", choices=["generator", "tokenizer"], help="which; %(default)s")
    given.add_argument("--out", type=Path, default="export", metavar="DIR", help="a new folder; %(default)s")
    given.add_argument(
        "--format", default="diffusers", choices=["diffusers", "pt", "safetensors"], help="of the weights; %(default)s"
    )
    given.add_argument("--weights", default="ema", choices=["ema", "raw"], help="of the generator; %(default)s")
    given.add_argument("--license", default="other", help="for the page, as the Hub names it; %(default)s")
    for stage in STAGES:
        command = commands.add_parser(stage, help=f"the body of the stage {stage}, as dvc.yaml calls it")
        if over := FOREACH.get(stage):
            command.add_argument(
                "item", nargs="?", metavar=singular(over), help=f"a name under `{over}` in params.yaml; from DVC_STAGE"
            )
        if stage in TRAININGS:
            command.add_argument("--dry-run", action="store_true", help="print what it would do, and stop")
    return top


def _add_verify(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("parts", nargs="*", metavar="PART", help="parts of params.yaml; without: all, and all outputs")
    verify.add_argument("--remote", action="store_true", help="also read tars that lie behind URLs")


def _add_data(data: argparse.ArgumentParser) -> None:
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_verify(actions.add_parser("verify"))  # its name before it was `darkroom verify`
    show = actions.add_parser("show", help="print counts, classes, sizes, captions and damage, and write a grid")
    show.add_argument("parts", nargs="*", metavar="PART", help="parts of params.yaml; without: all")
    show.add_argument("--split", choices=["train", "val", "test"], help="images of this split alone")
    show.add_argument(
        "--grid", type=Path, default="logs/data/grid.png", metavar="FILE", help="where the grid is written; %(default)s"
    )
    show.add_argument("--images", type=int, default=36, help="images in the grid, 0: no grid; %(default)s")
    show.add_argument("--quarantine", action="store_true", help="list every sample that something was wrong with")
    show.add_argument("--json", action="store_true", help="print JSON")


def _add_sample(sample: argparse.ArgumentParser) -> None:
    add = _adder(sample)
    add("--text", "what to make images of; may come several times", **_SEVERAL)
    add("--text-file", "a file with a text a line; may come several times", metavar="FILE", **_SEVERAL)
    add(
        "--by",
        "what draws texts: models/generator, or prior and decoder; by default the former where it reads texts",
        choices=["generator", "decoder"],
    )
    add("--embedding-of", "an image to make variations of; may come several times", metavar="FILE", **_SEVERAL)
    add("--mask", "with --embedding-of: an image, white where the others are filled in (RePaint)", metavar="FILE")
    add("--labels", "classes, by name or number: models/generator", metavar="CLASS,…", **_SEVERAL)
    add("--images", "images of each; %(default)s", type=int, default=4)
    add("--seed", "of all noise; `sample_text.seed`, of models/generator `sample_generator.common.seed`", type=int)
    title = "of models/generator, in place of what `sample_generator` in params.yaml says"
    add_of_classes = _adder(sample.add_argument_group(title))
    add_of_classes("--steps", "steps of the solver")
    add_of_classes("--guidance", "scale of guidance; 1: none", type=float)
    add_of_classes("--solver", "the solver; it fits what was trained")
    weights = "ema, raw, a .safetensors file, or a folder with a model or a checkpoint"
    add_of_classes("--weights", weights, metavar="WEIGHTS")
    add_of_classes("--sigma-rel", "width of the average, rebuilt from the kept ones", type=float)
    add("--out", "where the grid is written; a name under logs/sample/", metavar="FILE.png")


def _add_invert(invert: argparse.ArgumentParser) -> None:
    """Add the options of `darkroom invert`; their names are the fields of its `Request`."""
    add = _adder(invert)
    add("--split", "stored images of this split; %(default)s", choices=["train", "val", "test"], default="test")
    add("--images", "how many, drawn of the split; %(default)s", type=int, default=8)
    add("--key", "the stored image of this key; may come several times", dest="keys", metavar="KEY", **_SEVERAL)
    files = {"action": "extend", "default": [], "nargs": "+"}
    add("--from", "image files in place of stored images", dest="files", metavar="FILE", **files)
    add("--labels", "their classes, in place of their own: one for all, or one an image", metavar="CLASS,…", **_SEVERAL)
    add("--text", "their captions, likewise; may come several times", **_SEVERAL)
    add("--to-label", "a row of the same noise as other classes", metavar="CLASS,…", **_SEVERAL)
    add("--to-text", "a row of the same noise by another text; may come several times", metavar="TEXT", **_SEVERAL)
    add("--steps", "steps of the solver, there and back; those of `sample_generator`")
    add("--solver", "ddim, euler or heun; ddim of Gaussian diffusion, euler of a flow")
    add("--guidance", "scale of guidance there and back; %(default)s: none", type=float, default=1.0)
    add("--edit-guidance", "that of --to-label and --to-text; that of `sample_generator`", type=float, metavar="SCALE")
    add("--weights", "ema, raw, a .safetensors file, or a folder with a model or a checkpoint")
    out = "where the grid is written, and a table and the noise beside it; a name under logs/invert/"
    add("--out", out, metavar="FILE.png")


# What a command calls, MODULE:FUNCTION, and the options that are its arguments, in their order.
_CALLS = {
    "compare": ("tools.compare.table:table", "old", "new", "md", "seeds", "all"),
    "dag": ("dag.picture:dag", "write"),
    "data": ("tools.verify.show:show", "parts", "split", "grid", "images", "quarantine", "json"),
    "doctor": ("tools.doctor.examine:doctor",),
    "export": ("tools.export.command:export", "out", "format", "license", "weights"),
    "export --model tokenizer": ("tools.export.tokenizer:export_tokenizer", "out", "format", "license"),
    "params": ("tools.params.command:params", "key", "all"),
    "params --write": ("tools.params.page:write_page", "write"),
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
_REQUESTS = {  # of these all options are one argument, the `Request` of the function's module
    "init": "tools.init.command:init",
    "invert": "tools.invert.command:invert",
    "score": "tools.score.command:score",
}


def _loaded(place: str) -> tuple[Any, Any]:
    """Return a module of this package and a function in it, from MODULE:FUNCTION."""
    module, _, name = place.partition(":")
    found = importlib.import_module(f"darkroom.{module}")
    return found, getattr(found, name)


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


def _run(options: argparse.Namespace) -> int:
    """Run a command, print what it returns, and return the exit code."""
    if options.command in STAGES:
        return _stage(options)
    if options.command in ("check", "sample"):
        print(_check(options) if options.command == "check" else _sample(options))
        return 0
    if options.command in _REQUESTS:
        if options.command == "score":
            require_paths(options)
        elif options.command == "init":
            Init.of(options)  # refuses before it is loaded what it would refuse
        module, function = _loaded(_REQUESTS[options.command])
        print(function(module.Request.of(options)))
        return 0
    key = _variant(options)
    place, *names = _CALLS[key]
    result = _loaded(place)[1](*(getattr(options, name) for name in names))
    if key == "verify":
        return int(not result)
    if key == "tune":
        for line in result:
            print(line, flush=True)
        return 0
    text, sound = result if key == "doctor" else (result, True)
    print(f"darkroom {options.command}: {text}" if key in ("dag", "params --write") else text)
    return int(not sound)


def _check(options: argparse.Namespace) -> str:
    from darkroom.check.check import check, check_sources
    from darkroom.dag.lock_file import mend

    if mended := mend():
        print(mended)
    return f"darkroom check: {check(counted=True)}{check_sources(options.leave_out)}"


def _stage(options: argparse.Namespace) -> int:
    """Run the body of a stage, or print what it would do."""
    if getattr(options, "dry_run", False):
        print(_loaded("tools.dry_run:dry_run")[1](options.command, _item(options)), end="")
    else:
        _loaded("runner:run_stage")[1](options.command, _item(options))
    return 0


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
