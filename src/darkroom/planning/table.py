"""A plan as a table for people, and as JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from darkroom.planning.numbers import count_of, time_of
from darkroom.planning.stage_plan import StagePlan
from darkroom.tables import aligned, bytes_of

_HEADER = ("stage", "parameters", "FLOPs an image", "memory", "disk", "time", "last time")


def _row(plan: StagePlan, start: float, last: Mapping[str, float]) -> tuple[str, ...]:
    flops = "" if plan.forward is None else count_of(plan.forward)
    if plan.backward is not None:
        flops += f" + {count_of(plan.backward)}"
    about = {"measured": "", "earlier run": "", "guess": "about "}
    seconds = "?" if plan.source not in about else about[plan.source] + time_of(plan.seconds + start)
    return (
        plan.stage,
        f"{plan.parameters:,}" if plan.parameters is not None else "",
        flops,
        bytes_of(sum(plan.memory.values())) if plan.memory else "",
        bytes_of(sum(plan.disk.values())) if plan.disk else "",
        seconds,
        time_of(last[plan.stage]) if plan.stage in last else "",
    )


def total_seconds(plans: Sequence[StagePlan], start: float) -> float:
    """Return the time of all stages one after another, a process start each."""
    return sum(plan.seconds + start for plan in plans)


def as_text(plans: Sequence[StagePlan], start: float, last: Mapping[str, float], assumed: Sequence[str]) -> str:
    """Return the table, its total, and below it what was assumed.

    Args:
        plans: the stages.
        start: seconds that the start of a stage's process takes.
        last: seconds that stages took the last time.
        assumed: sentences.
    """
    rows = [_HEADER, *(_row(plan, start, last) for plan in plans)]
    disk = sum(sum(plan.disk.values()) for plan in plans)
    largest = max((sum(plan.memory.values()) for plan in plans), default=0)
    whole = time_of(total_seconds(plans, start)) + (" and more" if any(p.source == "too large" for p in plans) else "")
    rows.append(("total", "", "", f"≤ {bytes_of(largest)}", bytes_of(disk), whole, ""))
    lines = aligned(rows)
    rule = "-" * max(map(len, lines))
    lines[1:1] = [rule]
    lines[-1:-1] = [rule]
    notes = [note for plan in plans for note in plan.notes]
    return "\n".join([*lines, "", "Assumed:", *(f"- {sentence}." for sentence in (*assumed, *notes))])


def as_json(plans: Sequence[StagePlan], start: float, last: Mapping[str, float], assumed: Sequence[str]) -> str:
    """Return the same as one JSON object: bytes, seconds, operations."""
    stages: list[dict[str, Any]] = [{**asdict(plan), "last_seconds": last.get(plan.stage)} for plan in plans]
    return json.dumps(
        {
            "stages": stages,
            "start_seconds": start,
            "total_seconds": total_seconds(plans, start),
            "assumed": list(assumed),
        },
        indent=2,
    )
