"""What a plan says of one stage."""

from dataclasses import dataclass, field


@dataclass
class StagePlan:
    """One line of the plan.

    parameters: of the networks that run, None where none does.
    forward, backward: floating-point operations an image, a multiplication and an addition counted as two.
    memory: bytes of one process, by what holds them; the libraries themselves are not in it.
    disk: bytes, by what: outputs, and a training's state.
    seconds: what the stage takes, its start not counted.
    source: measured, or earlier run, or a guess.
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
    notes: list[str] = field(default_factory=list)
    stale: bool = True
