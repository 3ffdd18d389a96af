"""What every training has: how long, how fast, with which seed. Progress is counted in images."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.numbers import NO_FILE, Positive, Seed, Sha256, Share
from darkroom.params.section import Section

Schedule = Literal["constant", "linear", "cosine", "one_cycle", "inverse_sqrt", "exponential", "piecewise"]


Optimizer = Literal["adamw", "muon"]


class Milestone(Section):
    """From so many images on, the learning rate is this share of the highest."""

    images: Positive
    rate: Annotated[float, Field(ge=0)]


class Group(Section):
    """Parameters with a learning rate, a weight decay or an optimizer of their own."""

    match: Annotated[str, Field(min_length=1)]
    rate: Annotated[float, Field(ge=0)] = 1.0
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    schedule: Schedule | None = None
    optimizer: Optimizer | None = None


class Init(Section):
    """Weights to begin with instead of random ones: fine-tuning."""

    folder: str
    url: str | None
    sha256: Sha256 | None
    skip: list[str]

    @model_validator(mode="after")
    def _one_source(self) -> "Init":
        if self.url is not None and self.folder != NO_FILE:
            raise ValueError(f"give a folder or a url, not both: without a folder it is {NO_FILE}")
        return self


class Training(Section):
    """The settings of the training loop, the same for every model."""

    seed: Seed
    threads: Positive
    processes: Positive
    precision: Literal["fp32", "bf16", "fp16"]
    tf32: bool
    compile: bool
    channels_last: bool
    images: Positive
    batch: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    schedule: Schedule
    warmup: Annotated[int, Field(ge=0)]
    final_rate: Share
    decay_images: Positive | None
    milestones: list[Milestone]
    optimizer: Optimizer
    betas: Annotated[tuple[Share, Share], Field(strict=False)]
    weight_decay: Annotated[float, Field(ge=0)]
    clip_norm: Annotated[float, Field(gt=0)] | None
    groups: list[Group]
    ema_decay: Share
    ema_profiles: list[Annotated[float, Field(gt=0, lt=0.28)]]
    ema_snapshots: Positive
    non_finite: Literal["stop", "skip"]
    select: Literal["last", "best"]
    init: Init
    log_every: Positive
    validate_every: Positive

    @model_validator(mode="after")
    def _whole_updates(self) -> "Training":
        if self.images % self.batch:
            raise ValueError(f"images ({self.images}) must be a multiple of batch ({self.batch})")
        if self.batch % self.processes:
            raise ValueError(f"batch ({self.batch}) must be a multiple of processes ({self.processes})")
        if self.warmup >= self.images:
            raise ValueError(f"warmup ({self.warmup}) must be below images ({self.images})")
        return self

    @model_validator(mode="after")
    def _schedules(self) -> "Training":
        """Each schedule has what it needs, and no value stands here that nothing reads."""
        used = {self.schedule, *(group.schedule for group in self.groups)}
        needs = {"inverse_sqrt": ("decay_images", self.decay_images), "piecewise": ("milestones", self.milestones)}
        for schedule, (key, value) in needs.items():
            if schedule in used and not value:
                raise ValueError(f"schedule {schedule} needs {key}")
            if schedule not in used and value:
                raise ValueError(f"{key} is read by the schedule {schedule} only: take it out")
        if self.final_rate and not used & {"linear", "cosine", "exponential"}:
            raise ValueError("final_rate is read by the schedules linear, cosine and exponential only: set it to 0.0")
        if "exponential" in used and not self.final_rate:
            raise ValueError("schedule exponential needs a final_rate above 0, as a share of learning_rate")
        starts = [milestone.images for milestone in self.milestones]
        if starts != sorted(set(starts)):
            raise ValueError("milestones must rise in images")
        return self
