"""The sections that `sample_generator` reads."""

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from darkroom.models.kinds import GENERATORS
from darkroom.params.numbers import Positive, Seed
from darkroom.params.run import Run
from darkroom.params.section import Section


class Common(Section):
    """How many images of which weights, whatever the kind."""

    seed: Seed = 1
    """Seed of the initial noise; image i depends on (seed, i) alone."""
    threads: Positive = 1
    """CPU threads."""
    images: Positive = 50000
    """Number of images; image i has class i modulo the number of classes."""
    batch: Positive = 125
    """Images in a forward pass, the last one padded."""
    weights: Literal["ema", "raw"] = "ema"
    """Averaged weights (ema), or those of the last optimizer step (raw)."""
    sigma_rel: Annotated[float, Field(gt=0, lt=0.28)] | None = None
    """Relative width of the average, rebuilt from the training's ema_profiles; null: as `weights` says."""
    shard_size: Positive = 1000
    """Images in a shard."""


_sections: dict[str, Any] = {kind: (GENERATORS.load("sampling", kind) | None, None) for kind in GENERATORS}


class SampleGenerator(create_model("Sampled", __base__=Section, **_sections)):  # type: ignore[misc]
    """How many images, and for each kind how they are sampled. Only the chosen kind's section is a dependency."""

    common: Common = Common()
    """Which images of which weights, whatever the kind."""


class Params(Section):
    """What dvc.yaml gives to `sample_generator`."""

    run: Run
    sample_generator: SampleGenerator
