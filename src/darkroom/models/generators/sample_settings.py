"""The sections that `sample_generator` reads."""

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from darkroom.models.kinds import GENERATORS
from darkroom.params.numbers import Positive, Seed
from darkroom.params.run import Run
from darkroom.params.section import Section


class Common(Section):
    """How many images of which weights, whatever the kind."""

    seed: Seed
    threads: Positive
    images: Positive
    batch: Positive
    weights: Literal["ema", "raw"]
    sigma_rel: Annotated[float, Field(gt=0, lt=0.28)] | None
    shard_size: Positive


_sections: dict[str, Any] = {kind: (GENERATORS.load("sampling", kind) | None, None) for kind in GENERATORS}


class SampleGenerator(create_model("Sampled", __base__=Section, **_sections)):  # type: ignore[misc]
    """How many images, and for each kind how they are sampled. Only the chosen kind's section is a dependency."""

    common: Common


class Params(Section):
    """What dvc.yaml gives to `sample_generator`."""

    run: Run
    sample_generator: SampleGenerator
