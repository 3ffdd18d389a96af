"""`darkroom times`: when each stage of the last run began and how long it took, and which ones the end waited for."""

# No effect on any output: prints

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.check.check import read_params
from darkroom.dag.graph import below, consumers
from darkroom.errors import DarkroomError
from darkroom.params.stage import DVC, read_yaml
from darkroom.terminal.half_blocks import columns_of_terminal
from darkroom.terminal.tables import aligned
from darkroom.tools.plan.history import events
from darkroom.tools.plan.numbers import time_of

_RUNS = Path("logs/runs.jsonl")
_PAUSE = 90.0  # seconds without a stage, after which another run has begun
_SHORT = 1.0  # seconds below which stages are counted together
_LEAST, _BAR = 20, "█"


@dataclass(frozen=True)
class Body:
    """One run of a stage's body: seconds of the clock at its begin and its end."""

    stage: str
    begin: float
    end: float


def last_run(history: Sequence[Mapping[str, Any]]) -> list[Body]:
    """Return the bodies of the last run of an engine that came to their ends, in the order in which they began.

    Args:
        history: events of stages' bodies.
    """
    begun: dict[str, float] = {}
    found: list[Body] = []
    for event in history:
        stage = str(event.get("stage"))
        if event.get("event") == "start":
            begun[stage] = float(event["time"])
        elif event.get("event") == "end" and stage in begun:
            found.append(Body(stage, begun.pop(stage), float(event["time"])))
    found.sort(key=lambda body: body.begin)
    first = 0
    for at in range(1, len(found)):
        if found[at].begin - max(body.end for body in found[first:at]) > _PAUSE:
            first = at
    return found[first:]


def waited_for(bodies: Sequence[Body], after: Mapping[str, set[str]]) -> set[Body]:
    """Return the bodies that the end of a run waited for: the last one, of what it needs the last, and so on.

    Args:
        bodies: of one run.
        after: by stage, the stages that depend on it.
    """
    chain = {last := max(bodies, key=lambda body: body.end)}
    while before := [body for body in bodies if _name(last) in after.get(_name(body), ()) and body.end <= last.begin]:
        chain.add(last := max(before, key=lambda body: body.end))
    return chain


def _name(body: Body) -> str:
    return body.stage.partition("@")[0]


def times(width: int | None = None) -> str:
    """Return the last run as a chart, a line a stage.

    Args:
        width: characters in a row; None: those of the terminal.

    Raises:
        DarkroomError: nothing has run here.
    """
    bodies = last_run(events(_RUNS))
    if not bodies:
        raise DarkroomError(f"{_RUNS} tells of no stage that came to its end: run `snakemake --cores all` first.")
    chain = waited_for(bodies, below(consumers(read_params(), read_yaml(DVC))))
    start, end = min(body.begin for body in bodies), max(body.end for body in bodies)
    long = [body for body in bodies if body.end - body.begin >= _SHORT]
    rows = [
        (f"{body.stage}{' *' if body in chain else ''}", time_of(body.begin - start), time_of(body.end - body.begin))
        for body in long
    ]
    lines = aligned([("stage", "after", "took"), *rows])
    room = max(_LEAST, (width or columns_of_terminal()) - max(map(len, lines)) - 2)
    bars = [_bar(body, start, end, room) for body in long]
    drawn = [lines[0], *(f"{line}  {bar}" for line, bar in zip(_padded(lines[1:], lines), bars, strict=True))]
    on_way = sum(body.end - body.begin for body in chain)
    short = len(bodies) - len(long)
    told = [f"{len(bodies)} stages in {time_of(end - start)}; * the end waited for: {time_of(on_way)} of that."]
    told += [f"{short} of them took less than a second each."] if short else []
    return "\n".join([*drawn, "", *told])


def _padded(lines: Sequence[str], all_lines: Sequence[str]) -> list[str]:
    width = max(map(len, all_lines))
    return [line.ljust(width) for line in lines]


def _bar(body: Body, start: float, end: float, room: int) -> str:
    """Return a bar from the begin of a body to its end, of a character at least."""
    scale = room / max(1e-9, end - start)
    left = min(room - 1, int((body.begin - start) * scale))
    return " " * left + _BAR * max(1, min(room, round((body.end - start) * scale)) - left)
