"""A plan as a table for people, and as JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from darkroom.terminal.numbers import aligned, bytes_of, count_of, time_of
from darkroom.tools.plan.stage_plan import SKIPPED, StagePlan

UNKNOWN = ("too large", "not measured")  # sources of no time
_HEADER = ("stage", "parameters", "FLOPs", "memory", "disk", "time", "from", "last time")


@dataclass(frozen=True)
class Whole:
    """What all stages of a plan take together, in seconds.

    bodies: their sum.
    dvc: of `dvc repro`, one stage after another.
    snakemake: of `snakemake --cores all`, side by side.
    cores: of this machine.
    between: what a stage takes under Snakemake besides its body.
    load: how many times their own work the measured calls took, which is near 1 on a quiet machine.
    """

    bodies: float
    dvc: float
    snakemake: float
    cores: int
    between: float
    load: float


def _row(plan: StagePlan, last: Mapping[str, float]) -> tuple[str, ...]:
    flops = "" if plan.forward is None else count_of(plan.forward)
    if plan.backward is not None:
        flops += f" + {count_of(plan.backward)}"
    return (
        plan.stage,
        f"{plan.parameters:,}" if plan.parameters is not None else "",
        flops,
        bytes_of(sum(plan.memory.values())) if plan.memory else "",
        bytes_of(sum(plan.disk.values())) if plan.disk else "",
        "?" if plan.source in UNKNOWN else time_of(plan.seconds),
        plan.source,
        time_of(last[plan.stage]) if plan.stage in last else "",
    )


def as_text(plans: Sequence[StagePlan], whole: Whole, last: Mapping[str, float], assumed: Sequence[str]) -> str:
    """Return the table, its total, and below it the time of the whole and what was assumed.

    Args:
        plans: the stages.
        whole: what they take together.
        last: seconds that stages' bodies took the last time.
        assumed: sentences.
    """
    rows = [_HEADER, *(_row(plan, last) for plan in plans if plan.source != SKIPPED)]
    disk = sum(sum(plan.disk.values()) for plan in plans)
    largest = max((sum(plan.memory.values()) for plan in plans), default=0)
    more = " and more" if any(plan.source in UNKNOWN for plan in plans) else ""
    rows.append(("total", "", "", f"≤ {bytes_of(largest)}", bytes_of(disk), time_of(whole.bodies) + more, "", ""))
    lines = aligned(rows)
    rule = "-" * max(map(len, lines))
    lines[1:1] = [rule]
    lines[-1:-1] = [rule]
    engines = [
        f"`snakemake --cores {whole.cores}`, side by side: {time_of(whole.snakemake)}{more}",
        f"`dvc repro`, one after another: {time_of(whole.dvc)}{more}",
    ]
    if skipped := [f"{plan.stage} ({plan.skipped})" for plan in plans if plan.source == SKIPPED]:
        engines.append(f"skipped, with nothing to do: {', '.join(skipped)}")
    notes = [note for plan in plans for note in plan.notes]
    return "\n".join([*lines, "", *engines, "", "Assumed:", *(f"- {sentence}." for sentence in (*assumed, *notes))])


def as_json(plans: Sequence[StagePlan], whole: Whole, last: Mapping[str, float], assumed: Sequence[str]) -> str:
    """Return the same as one JSON object: bytes, seconds, operations."""
    stages: list[dict[str, Any]] = [{**asdict(plan), "last_seconds": last.get(plan.stage)} for plan in plans]
    return json.dumps({"stages": stages, "seconds": asdict(whole), "assumed": list(assumed)}, indent=2)
