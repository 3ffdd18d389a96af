"""The sections that `score_dit` reads."""

from typing import Annotated

from pydantic import Field

from darkroom.params import Section
from darkroom.schemas.run import Run
from darkroom.schemas.training import Positive


class ScoreDiT(Section):
    """How the standard errors are made."""

    threads: Positive
    batch: Positive
    blocks: Annotated[int, Field(ge=2)]


class Params(Section):
    """What dvc.yaml gives to `score_dit`."""

    run: Run
    score_dit: ScoreDiT
