"""`darkroom times`: when each stage of the last run began and how long it took, and which ones the end waited for."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from typer import Option

from darkroom.check.check import read_params
from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.graph import below, consumers
from darkroom.dag.history import RUNS, events
from darkroom.dag.stages import FOREACH
from darkroom.errors import DarkroomError
from darkroom.params.stage import DVC, read_yaml
from darkroom.terminal.numbers import aligned, time_of

_NEXT = 5.0  # seconds between the end of what a stage waits for and its begin, at most
_SHORT = 1.0  # seconds below which stages are not drawn
_LEAST, _BAR = 20, "█"


@dataclass(frozen=True)
class Body:
    """One run of a stage's body: seconds of the clock at its begin and its end, and the run of the engine."""

    stage: str
    begin: float
    end: float
    run: str | None = None


def last_run(history: Sequence[Mapping[str, Any]]) -> list[Body]:
    """Return the bodies of the last run of an engine that came to their ends, in the order in which they began.

    Those of older versions, which name no run, count as one. `code` is left out: Snakemake runs it before the others.
    """
    begun: dict[str, float] = {}
    found: list[Body] = []
    for event in history:
        if (stage := str(event.get("stage"))) == CODE:
            continue
        if event.get("event") == "start":
            begun[stage] = float(event["time"])
        elif event.get("event") == "end" and stage in begun:
            found.append(Body(stage, begun.pop(stage), float(event["time"]), event.get("run")))
    return sorted((body for body in found if body.run == found[-1].run), key=lambda body: body.begin)


def waited_for(bodies: Sequence[Body], after: Mapping[str, set[str]]) -> set[Body]:
    """Return the bodies that the end of a run waited for: the last one, what that waited for, and so on.

    A stage waits for the last of what it needs, or where that had ended long before, for a core: for what ended last.
    `after` has by stage the stages that depend on it.
    """
    chain = {last := max(bodies, key=lambda body: body.end)}
    while before := [body for body in bodies if body.end <= last.begin and body not in chain]:
        latest = max(before, key=lambda body: body.end)
        needed = [body for body in before if _is_needed(body, last, after) and body.end >= latest.end - _NEXT]
        chain.add(last := max(needed or [latest], key=lambda body: body.end))
    return chain


def _is_needed(body: Body, by: Body, after: Mapping[str, set[str]]) -> bool:
    (stage, _, item), (other, _, its) = body.stage.partition("@"), by.stage.partition("@")
    same = FOREACH.get(stage) == FOREACH.get(other)  # of another part nothing is needed
    return other in after.get(stage, ()) and not (item and its and same and item != its)


def times(
    width: Annotated[int | None, Option(min=1, help="characters in a row; default: those of the terminal")] = None,
) -> str:
    """Return the last run as a chart, a line a stage.

    Raises:
        DarkroomError: nothing has run here.
    """
    bodies = last_run(events())
    if not bodies:
        raise DarkroomError(f"{RUNS} has no stage that has ended: run `snakemake --cores all` first.")
    chain = waited_for(bodies, below(consumers(read_params(), read_yaml(DVC))))
    start, end = min(body.begin for body in bodies), max(body.end for body in bodies)
    long = [body for body in bodies if body.end - body.begin >= _SHORT]
    rows = [
        (f"{body.stage}{' *' if body in chain else ''}", time_of(body.begin - start), time_of(body.end - body.begin))
        for body in long
    ]
    lines = aligned([("stage", "after", "took"), *rows])
    room = max(_LEAST, (width or shutil.get_terminal_size().columns) - max(map(len, lines)) - 2)
    bars = [_bar(body, start, end, room) for body in long]
    drawn = [lines[0], *(f"{line}  {bar}" for line, bar in zip(lines[1:], bars, strict=True))]
    on_way = sum(body.end - body.begin for body in chain)
    summary = f"{len(bodies)} stages in {time_of(end - start)}; * the end waited for: {time_of(on_way)} of that."
    return "\n".join([*drawn, "", summary])


def _bar(body: Body, start: float, end: float, room: int) -> str:
    """Return a bar from the begin of a body to its end, of a character at least."""
    scale = room / max(1e-9, end - start)
    left = min(room - 1, int((body.begin - start) * scale))
    return " " * left + _BAR * max(1, min(room, round((body.end - start) * scale)) - left)
