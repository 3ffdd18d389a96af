"""The sections that `sample_text` reads."""

from typing import Literal

from darkroom.params import Section
from darkroom.schemas.numbers import Positive, Seed
from darkroom.schemas.run import Run
from darkroom.schemas.sample_decoder import Decoding
from darkroom.schemas.train_prior import PriorSampling
from darkroom.schemas.unet_names import Names


class SampleText(Section):
    """Which captions, and how the prior is sampled; how the U-Nets are stands in `sample_decoder`."""

    seed: Seed
    threads: Positive
    split: Literal["test", "val", "train"]
    images: Positive | None
    prior: PriorSampling


class Params(Section):
    """What dvc.yaml gives to `sample_text`."""

    run: Run
    train_decoder: Names
    sample_decoder: Decoding
    sample_text: SampleText
