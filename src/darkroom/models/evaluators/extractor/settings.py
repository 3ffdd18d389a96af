"""The sections that `train_extractor` reads."""

from typing import Annotated

from pydantic import Field

from darkroom.params.numbers import Positive, Share
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.params.training import Training


class ExtractorModel(Section):
    """The small classifier whose penultimate features the scores compare."""

    channels: Annotated[list[Positive], Field(min_length=1)]
    features: Positive
    dropout: Share


class TrainExtractor(Section):
    """The extractor and its training."""

    model: ExtractorModel
    training: Training


class Params(Section):
    """What dvc.yaml gives to `train_extractor`."""

    run: Run
    train_extractor: TrainExtractor
