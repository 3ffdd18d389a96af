"""The sections that `sample_dit` reads."""

from typing import Annotated, Literal

from pydantic import Field

from darkroom.params.numbers import Positive, Seed
from darkroom.params.run import Run
from darkroom.params.section import Section


class SampleDiT(Section):
    """How many images, by which solver, with how much guidance."""

    seed: Seed
    threads: Positive
    images: Positive
    batch: Positive
    weights: Literal["ema", "raw"]
    sigma_rel: Annotated[float, Field(gt=0, lt=0.28)] | None
    solver: Literal["euler", "heun"]
    steps: Positive
    guidance: Annotated[float, Field(ge=0)]
    shard_size: Positive


class Params(Section):
    """What dvc.yaml gives to `sample_dit`."""

    run: Run
    sample_dit: SampleDiT
