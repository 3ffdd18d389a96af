"""The sections that `score_generator` reads."""

from typing import Annotated

from pydantic import Field

from darkroom.params.inception import Inception
from darkroom.params.numbers import Positive
from darkroom.params.run import Run
from darkroom.params.section import Section


class ScoreGenerator(Section):
    """How the standard errors are made."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images in a forward pass."""
    blocks: Annotated[int, Field(ge=2)] = 10
    """Blocks of the jackknife that gives the standard errors."""


class InceptionOnly(Section):
    """Of `reference_stats`, where the weights of FID's network come from."""

    inception: Inception


class Params(Section):
    """What dvc.yaml gives to `score_generator`."""

    run: Run
    reference_stats: InceptionOnly
    score_generator: ScoreGenerator
