"""The section `run`: what cannot change a result."""

# No effect on any output: the section `run`, a dependency of no stage

from typing import Annotated, Literal

from pydantic import Field

from darkroom.params.section import Section

ChangedCode = Literal["restart", "resume"]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]


class Run(Section):
    """How a stage runs, never what it computes; a dependency of no stage."""

    device: Device = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Processes that read training data; 0: the training process itself."""
    ingest_processes: Annotated[int, Field(gt=0)] = 1
    """Processes that read, check and encode the images of a part."""
    cache_gb: Annotated[float, Field(gt=0)] = 20.0
    """Gigabytes of remote shards kept in .darkroom/cache/shards; the least recently used ones are removed."""
    micro_batch: Annotated[int, Field(gt=0)] | None = None
    """Images in one forward and backward pass of a process, to fit memory; null: all of its part of the batch."""
    activation_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, more time, the same bits."""
    accelerate: str | None = None
    """An accelerate configuration file for FSDP or several machines; null: DDP on this machine."""
    max_lost_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Seconds of training that a kill may cost, at most; saved more often where saving is cheap."""
    keep: Annotated[int, Field(ge=2)] = 2
    """Checkpoints kept of a training."""
    changed_code: ChangedCode = "restart"
    """What a training does when the code has changed since its last checkpoint."""
    checkpoints_to: str | None = None
    """Also copy checkpoints there: a folder, an fsspec URL, wandb:PROJECT or hub:OWNER/NAME; null: nowhere."""
    checkpoints_from: str | None = None
    """Where a training without a state of its own here looks for one; as `checkpoints_to`."""
    grid_every: Annotated[int, Field(ge=0)] = 25600
    """Images between grids written to logs/STAGE/grids/ while training, and one at its end; 0: none."""
    trackers: list[Literal["tensorboard", "wandb"]] = []
    """Trackers that a training also logs to, under logs/trackers/."""
    track_model: bool = False
    """Also give the averaged weights to Weights & Biases, as the artifact STAGE-model, when a training ends."""
