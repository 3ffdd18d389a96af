"""The sections that `sample_text` reads."""

from typing import Literal

from darkroom.models.decoder.sample_settings import Decoding
from darkroom.models.decoder.settings import Names
from darkroom.models.prior.settings import PriorSampling
from darkroom.params.run import Run
from darkroom.params.section import Positive, Section, Seed


class SampleText(Section):
    """Which captions, and how the prior is sampled; how the U-Nets are stands in `sample_decoder`."""

    seed: Seed = 1
    """Seed of all noise; image i depends on (seed, i) alone."""
    threads: Positive = 1
    """CPU threads."""
    split: Literal["test", "val", "train"] = "test"
    """Split whose captions are the texts."""
    images: Positive | None = 256
    """Number of captions, drawn of the split; null: all."""
    prior: PriorSampling = PriorSampling()
    """How the prior is sampled."""


class Params(Section):
    """What dvc.yaml gives to `sample_text`."""

    run: Run
    train_decoder: Names
    sample_decoder: Decoding
    sample_text: SampleText
