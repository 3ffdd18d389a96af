"""What a plan says of one stage."""

from dataclasses import dataclass, field, replace

SKIPPED = "skipped"


@dataclass
class StagePlan:
    """One line of the plan.

    parameters: of the networks that run, None where none does.
    forward, backward: floating-point operations of the whole stage, a multiplication and an addition counted as two.
    memory: bytes of one process, by what holds them; the libraries themselves are not in it.
    disk: bytes, by what: outputs, and a training's state.
    seconds: what its body takes, without the engine and the start of its process.
    skipped: why the stage has nothing to do, where `source` is skipped.
    source: measured, skipped, or last run, where it ran here under the same conditions; or too large, or not measured.
    measured_seconds: what was measured, where the last run decides.
    gpu: whether it has networks, which run on a GPU where there is one.
    wall, work: seconds that the measured calls took, and in which they worked, which are fewer on a busy machine.
    notes: what the person should know.
    stale: whether it is out of date.
    """

    stage: str
    parameters: int | None = None
    forward: float | None = None
    backward: float | None = None
    memory: dict[str, int] = field(default_factory=dict)
    disk: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    source: str = "measured"
    measured_seconds: float | None = None
    gpu: bool = False
    wall: float = 0.0
    work: float = 0.0
    notes: list[str] = field(default_factory=list)
    stale: bool = True
    skipped: str = ""


def grown(small: StagePlan, smaller: StagePlan, scale: int) -> StagePlan:
    """Return the plan of a stage on all images, from those on one image of `scale`, and on half of them.

    What a stage takes is a part that is always the same and one that grows with the images: a line through two points.
    A training is as long as its settings say, on however many images.
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
