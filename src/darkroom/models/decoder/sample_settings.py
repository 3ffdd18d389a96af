"""The sections that `sample_decoder` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.diffusion.settings import SOLVERS, Probability
from darkroom.models.decoder.settings import Names
from darkroom.models.decoder.unet_settings import Drawing
from darkroom.params.kinds import Overrides, merged, require_known
from darkroom.params.run import Run
from darkroom.params.section import PartName, Positive, Section, Seed


class UNetSampling(Drawing):
    """How a U-Net is sampled."""

    embedding_noise: Probability = 0.0
    """Fraction of noise in the image embedding, at most what the U-Net was trained on."""
    low_noise: Probability = 0.1
    """Fraction of noise in the low-resolution condition, at most what the U-Net was trained on."""


def few_calls(how: UNetSampling, objective: str, calls: int) -> UNetSampling:
    """Return how what was distilled into so many calls is sampled: unguided, with the noise in its conditions as asked.

    No threshold: what a call says is the way of several steps, whose x0 may lie outside the range of pixels.
    """
    few = {"solver": SOLVERS[objective][0], "steps": calls, "guidance": 1.0, "threshold": "none"}
    return UNetSampling.model_validate(few | how.model_dump(include={"embedding_noise", "low_noise"}))


class Pictures(Section):
    """Test images in the further pictures; 0: none is made."""

    variations: Annotated[int, Field(ge=0)] = 6
    """Test images that are decoded eight times, each time from other noise."""
    interpolations: Annotated[int, Field(ge=0)] = 4
    """Pairs of images with eight steps on the arc between their embeddings."""
    inpainted: Annotated[int, Field(ge=0)] = 0
    """Images whose middle is painted anew (RePaint)."""
    resamples: Positive = 3
    """How often each step of in-painting is repeated."""


class Decoding(Section):
    """How each U-Net is sampled."""

    batch: Positive = 64
    """Images in a forward pass, the last one padded."""
    weights: Literal["ema", "raw"] = "ema"
    """Averaged weights (ema), or those of the last optimizer step (raw)."""
    common: UNetSampling = UNetSampling()
    """How every U-Net is sampled."""
    unets: dict[PartName, Overrides] = {}
    """For each U-Net by name, the keys of `common` that have another value."""
    shard_size: Positive = 1000
    """Images in a shard."""

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

    seed: Seed = 1
    """Seed of all noise; image i depends on (seed, i) alone."""
    threads: Positive = 1
    """CPU threads."""
    split: Literal["test", "val", "train"] = "test"
    """Split whose image embeddings are decoded."""
    images: Positive | None = 256
    """Number of embeddings that are decoded, drawn of the split; null: all."""
    pictures: Pictures = Pictures()
    """Further pictures beside the grid, of the first images; 0: none."""


class Params(Section):
    """What dvc.yaml gives to `sample_decoder`."""

    run: Run
    train_decoder: Names
    sample_decoder: SampleDecoder
