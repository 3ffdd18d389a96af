"""The sections that `train_extractor` reads."""

from typing import Annotated

from pydantic import Field

from darkroom.params.run import Run
from darkroom.params.section import Fraction, Positive, Rate, Section, Warmup, Weight
from darkroom.params.training import Optimizer, Training


class ExtractorModel(Section):
    """The small classifier whose penultimate features the scores compare."""

    channels: Annotated[list[Positive], Field(min_length=1)] = [32, 64, 64]
    """Width of each level; each but the first halves the resolution."""
    features: Positive = 64
    """Length of the feature vector that the scores compare."""
    dropout: Fraction = 0.2
    """Fraction of features dropped in training."""


class ExtractorTraining(Training):
    """The training of the extractor."""

    images: Positive = 48_000
    learning_rate: Rate = 0.003
    warmup: Warmup = 14_400
    optimizer: Optimizer = "muon"
    weight_decay: Weight = 0.01
    log_every: Positive = 960
    validate_every: Positive = 4800


class TrainExtractor(Section):
    """The extractor and its training."""

    model: ExtractorModel = ExtractorModel()
    """Size of the classifier."""
    balanced: bool = True
    """Classes count alike however frequent they are, by logit adjustment; false: as frequent as they are."""
    training: ExtractorTraining = ExtractorTraining()
    """The keys of `training` that have another value here."""


class Params(Section):
    """What dvc.yaml gives to `train_extractor`."""

    run: Run
    train_extractor: TrainExtractor
