"""`darkroom tune`: try settings of a training on this machine, and show or write the faster ones."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from typer import Argument, Option

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check, read_params
from darkroom.dag.records import engine_runs
from darkroom.dag.stages import TRAININGS
from darkroom.environment import choose_device, set_threads
from darkroom.errors import DarkroomError
from darkroom.params.kinds import OWN_TRAINING
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.params.yaml_text import parse_yaml
from darkroom.terminal.numbers import aligned, time_of
from darkroom.tools import command
from darkroom.tools.cores import core_count
from darkroom.tools.editing import laid_over, shown
from darkroom.tools.plan.forks import Lost, forks, quiet
from darkroom.tools.plan.miniature import IMAGES, Miniature, count_images, ingested, scratch
from darkroom.tools.plan.plan import REHEARSE, ask_dvc, choose, in_miniature
from darkroom.tools.plan.table import UNKNOWN
from darkroom.tools.tune.search import KEYS, NOTHING, Changes, Result, Tried, Tuned, key_of, label, search

_Trials = tuple[list[str], Mapping[str, str], Callable[[str], Iterator[Tried]]]
_ATTEMPT = "darkroom.tools.tune.trial:attempt"
_LOG = Path("logs/tune.log")
_BUSY = 0.5  # load average over a minute, above which a warning is printed
_HEADER = ("", "updates/s", "first update", "loss", "gradient", "all updates", "")
# Of all columns but the last, fixed because each line is printed as soon as its setting was tried.
_WIDTHS = (len(label("channels_last", False)), 9, 12, 8, 8, 11)


@command("Train", "tune", "Find settings that are faster at equal loss on this machine.")
def tune(
    stages: Annotated[list[str] | None, Argument(help="training stages; default: all")] = None,
    write: Annotated[bool, Option("--write", help="write the faster settings to params.yaml")] = False,
) -> Iterator[str]:
    """Yield the results for trainings line by line, then the settings to change.

    Raises:
        DarkroomError: a name is not a training, or params.yaml or dvc.yaml is not valid.
    """
    if engine_runs():
        yield "Stages are running in this checkout and would distort the measurements: try again when they finish."
        return
    is_busy = os.getloadavg()[0] > _BUSY
    results: list[Tuned] = []
    with _trials(stages or ()) as (chosen, lacks, tries):
        if is_busy:
            yield "Other processes use this machine, which may favour some settings: try again when it is idle."
        for stage in chosen:
            if lacking := lacks.get(stage):
                yield f"{stage}: not tried: {lacking} cannot run here; `darkroom plan {lacking}` shows why."
                continue
            yield f"{stage} …"
            tuned = yield from _table(stage, tries(stage))
            if not tuned.why:
                results.append(tuned)
            elif stages or tuned.why != NOTHING:
                yield f"{stage}: {tuned.why}."
    yield from _end(results, write)


def _table(stage: str, tries: Iterator[Tried]) -> Generator[str, None, Tuned]:
    """Yield a table of trials line by line, and return the result; no lines if the training cannot be tried."""
    tried = [next(tries)]
    exact = tried[0].result
    if exact.why:
        return Tuned(stage, tried)
    yield f"{stage}: {exact.updates:,} updates of {exact.batch} images"
    yield _line(_HEADER)
    yield _line(_row(tried[0]))
    for each in tries:
        tried.append(each)
        yield _line(_row(each))
    yield f"  Differences are from exact settings; between batches the gradient differs by {exact.noise:.0%}."
    return Tuned(stage, tried)


def _line(cells: Sequence[str]) -> str:
    return f"  {aligned([cells], left=(0, len(_WIDTHS)), least=_WIDTHS)[0]}"


def _row(tried: Tried) -> tuple[str, ...]:
    result = tried.result
    if result.why:
        return (tried.label, *[""] * 5, tried.verdict)
    first = time_of(result.first) if result.first >= 1 else ""
    apart = f"{result.loss:.2%}", f"{result.gradient:.2%}"
    return (tried.label, f"{1 / result.seconds:.3g}", first, *apart, time_of(result.whole), tried.verdict)


def _end(results: Sequence[Tuned], write: bool) -> Iterator[str]:
    if not results:
        yield "No training was tried."
        return
    new, before = dict[str, Any](), PARAMS.read_text(encoding="utf-8")
    params = read_yaml(PARAMS)
    proposed = {key_of(tuned.stage, key, params): value for tuned in results for key, value in tuned.changes.items()}
    for key, value in proposed.items():
        try:
            check(parse_yaml(laid_over(before, {**new, key: value}), PARAMS))
        except DarkroomError as error:
            yield f"{key}: {shown(value)} would be faster, but is not allowed here: {error}"
        else:
            new[key] = value
    if not new:
        yield "No setting is faster: params.yaml is unchanged."
        return
    yield from (f"{key}: {shown(value)}" for key, value in new.items())
    if write:
        write_bytes(PARAMS, laid_over(before, new).encode())
    yield f"{'params.yaml has them now' if write else '`--write` sets them'}; affected trainings run again."


@contextmanager
def _trials(names: Sequence[str]) -> Iterator[_Trials]:
    """Run the dependencies of trainings (`names`; empty: all) in miniature, printing to a log.

    Yields the trainings, for each a stage above it that cannot run here, if any, and the function that tries them.
    """
    check()
    params = read_params()
    set_threads(core_count())  # of NumPy; torch's are set for each stage
    choose_device(params["run"]["device"])
    with ExitStack() as stack:
        with quiet(_LOG):
            dag = ask_dvc()
            known = [name for name in dag.stages if name.partition("@")[0] in TRAININGS]
            chosen = choose(names, known, set(), everything=True, kind="training")
            above = [name for name in dag.stages if any(name in dag.needs[each] for each in chosen)]
            modules = [task.partition(":")[0] for task in (REHEARSE, _ATTEMPT)]
            submit = stack.enter_context(forks(core_count(), *modules))
            parts = count_images(dag.stale)
            scale = -(-sum(count for _, count in parts.values()) // IMAGES)
            ready = ingested(parts, dag.stale) if scale == 1 else set()
            on = Miniature(stack.enter_context(scratch(ready)), parts, scale, ready)
            plans = in_miniature(submit, above, on, dag, params)
        lacks = {
            stage: name
            for stage in chosen
            for name in reversed(above)
            if name in dag.needs[stage] and plans[name].source in UNKNOWN
        }

        def attempt(stage: str, changes: Changes | None, exact: Path) -> Result:
            answer: Result | Lost = submit(_ATTEMPT, stage, on, changes, exact).result()
            return Result(why=f"it {answer.why}") if isinstance(answer, Lost) else answer

        def tries(stage: str) -> Iterator[Tried]:
            keys = [key for key in KEYS if "@" not in stage or key in OWN_TRAINING]  # not those of all U-Nets
            with TemporaryDirectory(prefix="darkroom-tune-") as folder:
                exact = Path(folder) / "exact.pt"
                yield from search(lambda changes: attempt(stage, changes, exact), core_count(), keys)

        yield chosen, lacks, tries
