"""Format a plan as a table for people and as JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from darkroom.terminal.numbers import aligned, bytes_of, count_of, time_of

SKIPPED = "skipped"


@dataclass
class StagePlan:
    """One line of the plan.

    forward, backward: floating-point operations of the whole stage; a multiplication and an addition count as two.
    memory: bytes of one process, by purpose, without libraries.
    source: measured, earlier plan (measured before), last run (if it ran here under the same conditions), skipped,
        too large, or not measured.
    wall, work: wall seconds and CPU seconds of the measured calls; on a busy machine the latter are fewer.
    """

    stage: str
    parameters: int | None = None  # of the networks that run; None if none does
    forward: float | None = None
    backward: float | None = None
    memory: dict[str, int] = field(default_factory=dict)
    disk: dict[str, int] = field(default_factory=dict)  # bytes of outputs, and of a training's state
    seconds: float = 0.0  # time of its body, without the engine and the start of its process
    source: str = "measured"
    gpu: bool = False  # whether it has networks, which run on a GPU if there is one
    wall: float = 0.0
    work: float = 0.0
    notes: list[str] = field(default_factory=list)  # for the user
    stale: bool = True  # whether it is out of date
    skipped: str = ""  # why the stage has nothing to do, if `source` is skipped


def grown(small: StagePlan, smaller: StagePlan, scale: int) -> StagePlan:
    """Return the plan of a stage on all images, from plans on one image of `scale` and on half as many.

    The cost of a stage is a constant plus a part proportional to the images: a line through two points. The length of
    a training is that of its settings, for any number of images.
    """
    if scale == 1 or small.backward is not None or small.source != "measured":
        return small
    if smaller.source != "measured":
        return replace(small, source=smaller.source, seconds=0.0, notes=[*small.notes, *smaller.notes])

    def line(one: float, other: float) -> float:
        return one + max(0.0, one - other) * 2 * (scale - 1)

    seconds, disk = line(small.seconds, smaller.seconds), line(small.disk["outputs"], smaller.disk["outputs"])
    forward = None if small.forward is None else line(small.forward, smaller.forward or 0.0)
    return replace(small, seconds=seconds, forward=forward, disk={"outputs": int(disk)})


UNKNOWN = ("too large", "not measured")  # sources without a time
_HEADER = ("stage", "parameters", "FLOPs", "memory", "disk", "time", "from")


@dataclass(frozen=True)
class Whole:
    """The total time of all stages of a plan, in seconds."""

    bodies: float  # their sum
    dvc: float  # of `dvc repro`, one stage after another
    snakemake: float  # of `snakemake --cores all`, side by side
    cores: int  # of this machine
    between: float  # time of a stage under Snakemake besides its body
    load: float  # ratio of wall time to work of the measured calls, near 1 on an idle machine


def _row(plan: StagePlan) -> tuple[str, ...]:
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
    )


def as_text(plans: Sequence[StagePlan], whole: Whole, assumed: Sequence[str]) -> str:
    """Return the table with its total, followed by the time of the whole DAG and the assumptions."""
    rows = [_HEADER, *(_row(plan) for plan in plans if plan.source != SKIPPED)]
    disk = sum(sum(plan.disk.values()) for plan in plans)
    largest = max((sum(plan.memory.values()) for plan in plans), default=0)
    more = " and more" if any(plan.source in UNKNOWN for plan in plans) else ""
    memory = f"≤ {bytes_of(largest)}" if largest else ""
    rows.append(("total", "", "", memory, bytes_of(disk), time_of(whole.bodies) + more, ""))
    header, *body, total = lines = aligned(rows)
    rule = "-" * max(map(len, lines))
    table = [header, rule, *body, rule, total]
    engines = [
        f"`snakemake --cores {whole.cores}`, in parallel: {time_of(whole.snakemake)}{more}",
        f"`dvc repro`, one after another: {time_of(whole.dvc)}{more}",
    ]
    if skipped := [f"{plan.stage} ({plan.skipped})" for plan in plans if plan.source == SKIPPED]:
        engines.append(f"skipped, nothing to do: {', '.join(skipped)}")
    notes = [note for plan in plans for note in plan.notes]
    return "\n".join([*table, "", *engines, "", "Assumed:", *(f"- {sentence}." for sentence in (*assumed, *notes))])


def as_json(plans: Sequence[StagePlan], whole: Whole, assumed: Sequence[str]) -> str:
    """Return the plan as one JSON object: bytes, seconds, operations."""
    return json.dumps(
        {"stages": [asdict(plan) for plan in plans], "seconds": asdict(whole), "assumed": list(assumed)}, indent=2
    )
