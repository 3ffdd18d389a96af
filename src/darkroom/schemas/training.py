"""What every training has: how long, how fast, with which seed. Progress is counted in images."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params import Section

Positive = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Training(Section):
    """The settings of the training loop, the same for every model."""

    seed: Seed
    threads: Positive
    precision: Literal["fp32", "bf16"]
    images: Positive
    batch: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    schedule: Literal["constant", "cosine", "one_cycle"]
    warmup: Annotated[int, Field(ge=0)]
    betas: Annotated[tuple[Share, Share], Field(strict=False)]
    weight_decay: Annotated[float, Field(ge=0)]
    clip_norm: Annotated[float, Field(gt=0)] | None
    ema_decay: Share
    log_every: Positive
    validate_every: Positive

    @model_validator(mode="after")
    def _whole_updates(self) -> "Training":
        if self.images % self.batch:
            raise ValueError(f"images ({self.images}) must be a multiple of batch ({self.batch})")
        if self.warmup >= self.images:
            raise ValueError(f"warmup ({self.warmup}) must be below images ({self.images})")
        return self
