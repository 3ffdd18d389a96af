"""The sections that `sample_text` reads."""

from typing import Literal

from darkroom.models.decoder.sample_settings import Decoding
from darkroom.models.decoder.unet_names import Names
from darkroom.models.prior.settings import PriorSampling
from darkroom.params.numbers import Positive, Seed
from darkroom.params.run import Run
from darkroom.params.section import Section


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
