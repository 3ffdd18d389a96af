"""The sections of the generator `normal`."""

from darkroom.models.generators.kind_settings import Kind
from darkroom.params.section import Section


class Normal(Kind):
    """Normal latents of each class."""


class Sampling(Section):
    """How images are sampled."""

    temperature: float = 1.0
    """Factor of the deviation."""
