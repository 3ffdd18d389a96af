"""The sections that `reference_stats` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.inception import Inception
from darkroom.params.numbers import Positive
from darkroom.params.run import Run
from darkroom.params.section import Section

Split = Literal["train", "val", "test"]


class ReferenceStats(Section):
    """Which real images are the reference, seen through which networks."""

    threads: Positive
    batch: Positive
    split: Split
    held_out: Split
    kid_images: Annotated[int, Field(ge=2)]
    blocks: Annotated[int, Field(ge=2)]
    extractors: Annotated[list[Literal["in_domain", "inception"]], Field(min_length=1)]
    inception: Inception

    @model_validator(mode="after")
    def _sensible(self) -> "ReferenceStats":
        if self.held_out == self.split:
            raise ValueError(f"held_out ({self.held_out}) must be another split than split")
        if len(set(self.extractors)) != len(self.extractors):
            raise ValueError("extractors holds a name twice")
        return self


class Params(Section):
    """What dvc.yaml gives to `reference_stats`."""

    run: Run
    reference_stats: ReferenceStats
