"""What a plan says of one stage."""

from dataclasses import dataclass, field


@dataclass
class StagePlan:
    """One line of the plan.

    parameters: of the networks that run, None where none does.
    forward, backward: floating-point operations an image, a multiplication and an addition counted as two.
    memory: bytes of one process, by what holds them; the libraries themselves are not in it.
    disk: bytes, by what: outputs, and a training's state.
    seconds: what its body takes, without the engine and the start of its process.
    source: measured, or last run, where it ran here under the same conditions, or guess; or too large to be measured.
    measured_seconds: what was measured, where the last run decides.
    gpu: whether it has networks, which run on a GPU where there is one.
    wall, work: seconds that the measured calls took, and in which they worked, which are fewer on a busy machine.
    uses: the modules of its networks and its recipe, which may be loaded when they are chosen.
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
    uses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stale: bool = True
