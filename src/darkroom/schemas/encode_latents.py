"""The sections that `encode_latents` reads."""

from typing import Literal

from darkroom.params import Section
from darkroom.schemas.numbers import Positive
from darkroom.schemas.run import Run


class EncodeLatents(Section):
    """How latents are computed and stored."""

    threads: Positive
    batch: Positive
    latents: Literal["continuous", "codes"]
    dtype: Literal["float32", "bfloat16"]


class Params(Section):
    """What dvc.yaml gives to `encode_latents`."""

    run: Run
    encode_latents: EncodeLatents
