"""The sections that `encode_latents` reads."""

from typing import Literal

from darkroom.params.run import Run
from darkroom.params.section import Positive, Section


class EncodeLatents(Section):
    """How latents are computed and stored."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images in a forward pass."""
    latents: Literal["continuous", "codes"] = "continuous"
    """continuous: the encoder's output before any quantisation; codes: of a discrete tokenizer, with their codebook."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of stored continuous latents."""


class Params(Section):
    """What dvc.yaml gives to `encode_latents`."""

    run: Run
    encode_latents: EncodeLatents
