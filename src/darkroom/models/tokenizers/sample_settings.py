"""The sections that `sample_tokenizer` reads."""

from typing import Annotated

from pydantic import Field

from darkroom.params.numbers import Positive, Seed
from darkroom.params.run import Run
from darkroom.params.section import Section


class SampleTokenizer(Section):
    """How many images, and how their codes are chosen; read where the tokenizer generates."""

    seed: Seed
    threads: Positive
    images: Positive
    batch: Positive
    min_p: Annotated[float, Field(ge=0, le=1)]
    temperature: Annotated[float, Field(gt=0)]
    guidance: Annotated[float, Field(ge=0)]
    shard_size: Positive


class Params(Section):
    """What dvc.yaml gives to `sample_tokenizer`."""

    run: Run
    sample_tokenizer: SampleTokenizer
