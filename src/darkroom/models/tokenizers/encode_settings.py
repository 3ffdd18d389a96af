"""The sections that `encode_latents` reads."""

from typing import Literal

from darkroom.params.numbers import Positive
from darkroom.params.run import Run
from darkroom.params.section import Section


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
