"""The sections of the generator `none`: under `train_generator` and under `sample_generator`."""

from pydantic import model_validator

from darkroom.models.generators.kind_settings import Kind
from darkroom.params.section import Section


class NoGenerator(Kind):
    """No generator: nothing is trained, sampled or scored."""

    @model_validator(mode="after")
    def _untrained(self) -> "NoGenerator":
        if self.training:
            raise ValueError("nothing is trained, so `training` is {}")
        return self


class NoSampling(Section):
    """No generator: it has no keys."""
