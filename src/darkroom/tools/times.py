"""`darkroom times`: show the start and duration of each stage of the last run, and its critical path."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import networkx as nx
from typer import Option

from darkroom.check.check import read_params
from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.history import RUNS, events
from darkroom.dag.stages import FOREACH
from darkroom.errors import DarkroomError
from darkroom.params.stage import DVC, OUTPUTS, items, paths, read_yaml, related, scope, stage_entry
from darkroom.terminal.numbers import aligned, time_of
from darkroom.tools import command

_NEXT = 5.0  # maximum seconds from the end of a dependency to the start of a stage that waited for it
_SHORT = 1.0  # seconds below which stages are not drawn
_LEAST, _BAR = 20, "█"


@dataclass(frozen=True)
class Body:
    """One run of a stage: start and end in seconds of the clock, and the run of the engine."""

    stage: str
    begin: float
    end: float
    run: str | None = None


def last_run(history: Sequence[Mapping[str, Any]]) -> list[Body]:
    """Return the stages that finished in the last run of an engine, in the order of their start.

    Entries of older versions, without a run, count as one run. `code` is left out: Snakemake runs it before the others.
    """
    begun: dict[str, float] = {}
    bodies: list[Body] = []
    for event in history:
        if (stage := str(event.get("stage"))) == CODE:
            continue
        if event.get("event") == "start":
            begun[stage] = float(event["time"])
        elif event.get("event") == "end" and stage in begun:
            bodies.append(Body(stage, begun.pop(stage), float(event["time"]), event.get("run")))
    return sorted((body for body in bodies if body.run == bodies[-1].run), key=lambda body: body.begin)


def waited_for(bodies: Sequence[Body], after: Mapping[str, set[str]]) -> set[Body]:
    """Return the critical path of a run: the last stage, the stage that it waited for, and so on.

    A stage waits for the last of its dependencies, or, if they ended long before, for a core: for the stage that ended
    last. `after` maps each stage to the stages that depend on it.
    """
    chain = {last := max(bodies, key=lambda body: body.end)}
    while before := [body for body in bodies if body.end <= last.begin and body not in chain]:
        latest = max(before, key=lambda body: body.end)
        needed = [body for body in before if _is_needed(body, last, after) and body.end >= latest.end - _NEXT]
        chain.add(last := max(needed or [latest], key=lambda body: body.end))
    return chain


def _is_needed(body: Body, by: Body, after: Mapping[str, set[str]]) -> bool:
    (stage, _, item), (other, _, its) = body.stage.partition("@"), by.stage.partition("@")
    same = FOREACH.get(stage) == FOREACH.get(other)  # stages of other parts are not needed
    return other in after.get(stage, ()) and not (item and its and same and item != its)


def consumers(params: Mapping[str, Any], dvc: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return for each stage of dvc.yaml except `code` the stages that read its outputs."""
    reads: dict[str, list[str]] = {}
    writes: dict[str, list[str]] = {}
    for name in dvc.get("stages", {}):
        if name == CODE:  # before every stage
            continue
        entry, reads[name], writes[name] = stage_entry(dvc, name), [], []
        for item in items(params, dvc, name):  # one box for all runs of a stage, with the edges of each run
            names = scope(params, dvc, name, item)
            reads[name] += paths(entry, ["deps"], names)
            writes[name] += paths(entry, OUTPUTS, names)
    return {
        maker: {
            reader
            for reader, needed in reads.items()
            if reader != maker and any(related(one, other) for one in outputs for other in needed)
        }
        for maker, outputs in writes.items()
    }


def below(after: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return for each stage all stages that depend on it, directly or not."""
    graph = nx.DiGraph(after)
    return {stage: nx.descendants(graph, stage) for stage in after}


@command("Train", "times", "Show the start time and duration of each stage of the last run.")
def times(
    width: Annotated[int | None, Option(min=1, help="width in characters; default: that of the terminal")] = None,
) -> str:
    """Return the last run as a chart, one line per stage.

    Raises:
        DarkroomError: no stage has finished here.
    """
    bodies = last_run(events())
    if not bodies:
        raise DarkroomError(f"{RUNS} has no finished stage: run `snakemake --cores all` first.")
    chain = waited_for(bodies, below(consumers(read_params(), read_yaml(DVC))))
    start, end = min(body.begin for body in bodies), max(body.end for body in bodies)
    long = [body for body in bodies if body.end - body.begin >= _SHORT]
    rows = [
        (f"{body.stage}{' *' if body in chain else ''}", time_of(body.begin - start), time_of(body.end - body.begin))
        for body in long
    ]
    lines = aligned([("stage", "after", "took"), *rows])
    room = max(_LEAST, (width or shutil.get_terminal_size().columns) - max(map(len, lines)) - 2)
    drawn = [f"{line}  {_bar(body, start, end, room)}" for line, body in zip(lines[1:], long, strict=True)]
    on_way = sum(body.end - body.begin for body in chain)
    summary = f"{len(bodies)} stages in {time_of(end - start)}; * on the critical path: {time_of(on_way)} of that."
    return "\n".join([lines[0], *drawn, "", summary, f"Stages under {_SHORT:g} s are not shown."])


def _bar(body: Body, start: float, end: float, room: int) -> str:
    """Return a bar from the start of a stage to its end, at least one character long."""
    scale = room / max(1e-9, end - start)
    left = min(room - 1, int((body.begin - start) * scale))
    return " " * left + _BAR * max(1, min(room, round((body.end - start) * scale)) - left)
