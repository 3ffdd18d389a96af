"""The sections that `sample_decoder` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.diffusion.settings import Probability
from darkroom.models.decoder.unet_names import Names
from darkroom.params.numbers import PartName, Positive, Seed
from darkroom.params.overrides import Overrides, merged, require_known
from darkroom.params.run import Run
from darkroom.params.section import Section


class UNetSampling(Section):
    """How a U-Net is sampled."""

    solver: Literal["ddpm", "ddim", "dpm", "unipc"]
    steps: Positive
    eta: Probability
    guidance: Annotated[float, Field(ge=0)]
    threshold: Literal["clip", "dynamic", "none"]
    percentile: Annotated[float, Field(gt=0, le=1)]
    embedding_noise: Probability
    low_noise: Probability

    @model_validator(mode="after")
    def _read(self) -> "UNetSampling":
        if self.eta and self.solver != "ddim":
            raise ValueError(f"eta is read by the solver ddim only, and solver is {self.solver}: set it to 0.0")
        return self


class Pictures(Section):
    """Test images in the further pictures; 0: none is made."""

    variations: Annotated[int, Field(ge=0)]
    interpolations: Annotated[int, Field(ge=0)]
    inpainted: Annotated[int, Field(ge=0)]
    resamples: Positive


class Decoding(Section):
    """How each U-Net is sampled, whatever is asked of them."""

    batch: Positive
    weights: Literal["ema", "raw"]
    common: UNetSampling
    unets: dict[PartName, Overrides]
    shard_size: Positive

    def sampling(self, name: str) -> UNetSampling:
        """Return how a U-Net is sampled: `common`, with what its own section has otherwise."""
        return merged(self.common, self.unets.get(name, {}), f"unets.{name}")

    @model_validator(mode="after")
    def _own(self) -> "Decoding":
        for name, own in self.unets.items():
            require_known(own, UNetSampling.model_fields, "a U-Net")
            self.sampling(name)
        return self


class SampleDecoder(Decoding):
    """How many images, of which split, and how each U-Net is sampled."""

    seed: Seed
    threads: Positive
    split: Literal["test", "val", "train"]
    images: Positive | None
    pictures: Pictures


class Params(Section):
    """What dvc.yaml gives to `sample_decoder`."""

    run: Run
    train_decoder: Names
    sample_decoder: SampleDecoder
