"""`darkroom tune`: tries the switches of a training on this machine, and says or writes those that pay."""

import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check
from darkroom.dag.records import engine_runs
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.params.yaml_text import parse_yaml
from darkroom.terminal.numbers import aligned, time_of
from darkroom.tools.editing import laid_over, shown
from darkroom.tools.tune.search import NOTHING, Tried, Tuned, key_of, label

_LOG = Path("logs/tune.log")
_BUSY = 0.5  # other processes that want a core, on average of a minute, from which it is said
_HEADER = ("", "updates/s", "first update", "loss", "gradient", "all updates", "")
# Of the columns but the last: each line is printed as soon as its setting was tried.
_WIDTHS = (len(label("channels_last", False)), 9, 12, 8, 8, 11)


def tune(
    stages: Annotated[list[str] | None, Argument(help="stages that train; default: all trainings")] = None,
    write: Annotated[bool, Option("--write", help="set in params.yaml what is faster")] = False,
) -> Iterator[str]:
    """Yield what was found of trainings, line after line, and at last what to set.

    Raises:
        DarkroomError: a name is no training, or params.yaml or dvc.yaml is not valid.
    """
    if engine_runs():
        yield "Running stages of this checkout would distort the measurements: try again when they have finished."
        return
    from darkroom.tools.tune.trials import trials  # and with it much of the source

    if os.getloadavg()[0] > _BUSY:
        yield "Others use this machine now, which may favour some settings: try again when it is quiet."
    found: list[Tuned] = []
    with trials(stages or (), _LOG) as on:
        for stage in on.chosen:
            if stage in on.lacks:
                lacking = on.lacks[stage]
                yield f"{stage}: not tried, as {lacking} cannot run here; `darkroom plan {lacking}` says why."
                continue
            yield f"{stage} …"
            tuned = yield from _table(stage, on.tries(stage))
            if not tuned.why:
                found.append(tuned)
            elif stages or tuned.why != NOTHING:
                yield f"{stage}: {tuned.why}."
    yield from _end(found, write)


def _table(stage: str, tries: Iterator[Tried]) -> Generator[str, None, Tuned]:
    """Yield a table of what is tried, line after line, and return it; no line where the training cannot be tried."""
    tried = [next(tries)]
    exact = tried[0].found
    if exact.why:
        return Tuned(stage, tried)
    yield f"{stage}: {exact.updates:,} updates of {exact.batch} images"
    yield _line(_HEADER)
    yield _line(_row(tried[0]))
    for each in tries:
        tried.append(each)
        yield _line(_row(each))
    yield f"  Differences from exact settings; between batches the gradient differs by {exact.noise:.0%}."
    return Tuned(stage, tried)


def _line(cells: Sequence[str]) -> str:
    return f"  {aligned([cells], left=(0, len(_WIDTHS)), least=_WIDTHS)[0]}"


def _row(tried: Tried) -> tuple[str, ...]:
    found = tried.found
    if found.why:
        return (tried.label, *[""] * 5, tried.verdict)
    first = time_of(found.first) if found.first >= 1 else ""
    apart = f"{found.loss:.2%}", f"{found.gradient:.2%}"
    return (
        tried.label,
        f"{1 / found.seconds:.3g}",
        first,
        *apart,
        time_of(found.whole),
        tried.verdict,
    )


def _end(found: Sequence[Tuned], write: bool) -> Iterator[str]:
    if not found:
        yield "No training was tried."
        return
    new, before = dict[str, Any](), PARAMS.read_text(encoding="utf-8")
    params = read_yaml(PARAMS)
    wanted = {key_of(tuned.stage, key, params): value for tuned in found for key, value in tuned.changes.items()}
    for key, value in wanted.items():
        try:
            check(parse_yaml(laid_over(before, {**new, key: value}), PARAMS))
        except DarkroomError as error:
            yield f"{key}: {shown(value)} would pay, and is not allowed here: {error}"
        else:
            new[key] = value
    if not new:
        yield "Nothing pays: params.yaml stays as it is."
        return
    yield from (f"{key}: {shown(value)}" for key, value in new.items())
    if write:
        write_bytes(PARAMS, laid_over(before, new).encode())
    yield f"{'params.yaml has them now' if write else '`--write` sets them'}; trainings that they change run again."
