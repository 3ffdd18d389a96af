"""Scores of averaged weights while they are trained: how often, of how many images, by which network."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from darkroom.params.section import NO_FILE, Positive, Section, Seed


class Evaluate(Section):
    """Scores of the averaged weights while training; they decide nothing but, with `min_improvement`, when it ends."""

    every: Annotated[int, Field(ge=0)] = 0
    """Images between evaluations; 0: none."""
    images: Annotated[int, Field(ge=4)] = 500
    """Images generated for each evaluation."""
    batch: Positive = 125
    """Images in a forward pass."""
    extractor: str = NO_FILE
    """models/extractor: the feature network of the scores; data/none: no evaluation."""

    def _misfits(self) -> Iterator[str]:
        if self.every and self.extractor == NO_FILE:
            yield "every is above 0, so extractor must be named: models/extractor"


class EvaluateGenerator(Evaluate):
    """Scores of the averaged weights while training; they decide nothing but, with `min_improvement`, when it ends."""

    seed: Seed = 2
    """Seed of their noise."""
    reference: str = NO_FILE
    """data/reference: the statistics of the real images; data/none: no evaluation."""

    def _misfits(self) -> Iterator[str]:
        if self.every and self.reference == NO_FILE:
            yield "every is above 0, so reference must be named: data/reference"
