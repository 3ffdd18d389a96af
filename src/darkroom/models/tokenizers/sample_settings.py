"""The sections that `sample_tokenizer` reads."""

from typing import Annotated

from pydantic import Field

from darkroom.params.run import Run
from darkroom.params.section import Positive, Section, Seed


class SampleTokenizer(Section):
    """How many images, and how their codes are chosen; read where the tokenizer generates."""

    seed: Seed = 1
    """Seed of the noise; image i depends on (seed, i) alone."""
    threads: Positive = 1
    """CPU threads."""
    images: Positive = 1000
    """Number of images; with classes, image i has class i modulo their number."""
    batch: Positive = 125
    """Images in a forward pass, the last one padded."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Codes less likely than this fraction of the likeliest one are not sampled; 0: none is left out; genie2: 0.25."""
    temperature: Annotated[float, Field(gt=0)] = 0.7
    """Divisor of the logits; above 1 rare codes become more frequent; genie2: 1.5."""
    guidance: Annotated[float, Field(ge=0)] = 1.5
    """Scale of classifier-free guidance, with classes; 1: no guidance."""
    shard_size: Positive = 1000
    """Images in a shard."""


class Params(Section):
    """What dvc.yaml gives to `sample_tokenizer`."""

    run: Run
    sample_tokenizer: SampleTokenizer
