"""The sections that `train_scene_reader` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.run import Run
from darkroom.params.section import Fraction, Positive, Rate, Section, Seed, Warmup, Weight
from darkroom.params.training import Training

GRID = 8  # cells in height and width, each with the centre of one thing at most: boxes of forms are two cells wide
Kind = Literal["position", "count", "relation"]


class ReaderModel(Section):
    """The small network that reads."""

    channels: Annotated[list[Positive], Field(min_length=1)] = [32, 64]
    """Width of each level; each halves the resolution; a side is a multiple of 8 times 2 to the power of the levels."""
    layers: Annotated[int, Field(ge=0)] = 3
    """Convolutions behind the levels."""


class Augment(Section):
    """What the renders are put through."""

    blur: Weight = 0.7
    """Largest standard deviation of the blur, in pixels; 0.0: none."""
    noise: Fraction = 0.1
    """Largest standard deviation of the noise, of pixels in [-1, 1]."""
    colour: Fraction = 0.1
    """Largest fraction by which each channel is scaled and shifted."""


class ReaderTraining(Training):
    """The training of the reader."""

    seed: Seed = 2
    images: Positive = 64_000
    learning_rate: Rate = 0.006
    warmup: Warmup = 19_200
    weight_decay: Weight = 0.01
    ema_decay: Fraction = 0.98
    log_every: Positive = 6400
    validate_every: Positive = 32_000


class TrainSceneReader(Section):
    """The reader and its training."""

    kinds: Annotated[list[Kind], Field(min_length=1)] = ["position", "count", "relation"]
    """Kinds of scenes to read, those of the source `shapes`."""
    held_out: Positive = 2000
    """Renders for validation while training, and as many others for the final accuracy."""
    model: ReaderModel = ReaderModel()
    """Size of the network."""
    augment: Augment = Augment()
    """Augmentation of the renders in training, as generated pictures are not quite clean."""
    training: ReaderTraining = ReaderTraining()
    """The keys of `training` that have another value here."""


class Size(Section):
    """Of `ingest`, the shape of the images that are judged."""

    image_size: Positive
    channels: Literal["RGB", "RGBA", "L"]


class Requested(Section):
    """Of `score_decoder`, whether the scores use this network."""

    attributes: Literal["none", "scenes"]


class Params(Section):
    """What dvc.yaml gives to `train_scene_reader`."""

    run: Run
    ingest: Size
    score_decoder: Requested
    train_scene_reader: TrainSceneReader

    @model_validator(mode="after")
    def _fits(self) -> "Params":
        if self.idle:
            return self
        if self.ingest.channels == "L":
            raise ValueError(
                "`ingest.channels` is L, and grey images show no colours to be read: set it to RGB or RGBA, or "
                "`score_decoder.attributes` to none"
            )
        levels, size = len(self.train_scene_reader.model.channels), self.ingest.image_size
        if size % (GRID * 2**levels):
            raise ValueError(
                f"`train_scene_reader.model.channels` has {levels} levels, for which a side must be a multiple of "
                f"{GRID * 2**levels} pixels, and `ingest.image_size` is {size}: take others or fewer levels"
            )
        return self

    @property
    def idle(self) -> str | None:
        """Why nothing is trained; None: a score asks for this reader."""
        return None if self.score_decoder.attributes == "scenes" else "`score_decoder.attributes` is none"
