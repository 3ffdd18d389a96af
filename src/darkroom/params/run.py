"""The section `run`: what cannot change a result."""

# No effect on any output: the section `run`, a dependency of no stage

from typing import Annotated, Literal

from pydantic import Field

from darkroom.params.section import Section

ChangedCode = Literal["restart", "resume"]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]


class Run(Section):
    """How a stage runs, never what it computes; a dependency of no stage."""

    device: Device
    workers: Annotated[int, Field(ge=0)]
    ingest_processes: Annotated[int, Field(gt=0)]
    cache_gb: Annotated[float, Field(gt=0)]
    img2dataset: Annotated[str, Field(min_length=1)]
    micro_batch: Annotated[int, Field(gt=0)] | None
    activation_checkpointing: bool
    accelerate: str | None
    at_risk: Annotated[float, Field(gt=0)]
    keep: Annotated[int, Field(ge=2)]
    changed_code: ChangedCode
    checkpoints_to: str | None
    checkpoints_from: str | None
    grid_every: Annotated[int, Field(ge=0)]
    trackers: list[Literal["tensorboard", "wandb"]]
