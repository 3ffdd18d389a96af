"""The section `run`, on which no stage depends: device, workers, trackers and other settings of the machine."""

# No effect on any output: the section `run`, a dependency of no stage

from typing import Annotated, Literal

from pydantic import Field

from darkroom.params.section import Section

ChangedCode = Literal["restart", "resume"]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]


class Run(Section):
    """How a stage runs, not what it computes; no stage depends on it."""

    device: Device = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Processes that read training data; 0: the training process reads them."""
    ingest_processes: Annotated[int, Field(gt=0)] = 1
    """Processes that read, check and encode the images of a part."""
    cache_gb: Annotated[float, Field(gt=0)] = 20.0
    """Gigabytes of remote shards kept in .darkroom/cache/shards; the least recently used ones are removed."""
    micro_batch: Annotated[int, Field(gt=0)] | None = None
    """Images per forward and backward pass of a process, to fit memory; null: its whole part of the batch."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time, the same bits."""
    accelerate: str | None = None
    """An accelerate configuration file for FSDP or several machines; null: DDP on this machine."""
    max_lost_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Maximum seconds of training lost when it is killed; if saving is cheap, checkpoints are more frequent."""
    keep: Annotated[int, Field(ge=2)] = 2
    """Number of checkpoints kept per training."""
    changed_code: ChangedCode = "restart"
    """If the code has changed since the last checkpoint: restart from image 0, or resume from it."""
    checkpoints_to: str | None = None
    """Where to also copy checkpoints: a folder, an fsspec URL, wandb:PROJECT or hub:OWNER/NAME; null: nowhere."""
    checkpoints_from: str | None = None
    """Where a training without local checkpoints looks for one; same values as `checkpoints_to`."""
    grid_every: Annotated[int, Field(ge=0)] = 102400
    """Images between grids written to logs/STAGE/grids/ during training; a grid of a generator is costly; 0: none."""
    trackers: list[Literal["tensorboard", "wandb"]] = []
    """Trackers that a training also logs to, under logs/trackers/."""
    track_model: bool = False
    """Upload the averaged weights to Weights & Biases as the artifact STAGE-model when a training ends."""
