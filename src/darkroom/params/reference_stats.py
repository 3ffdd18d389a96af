"""The sections that `reference_stats` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.inception import Inception
from darkroom.params.networks import ClipFile, Dinov2
from darkroom.params.numbers import Positive
from darkroom.params.run import Run
from darkroom.params.section import Section

Split = Literal["train", "val", "test"]


class ReferenceStats(Section):
    """Which real images are the reference, seen through which networks."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images in a forward pass."""
    split: Split = "train"
    """Split of the real images that generated ones are compared with."""
    held_out: Literal["val", "test"] = "test"
    """Split of real images scored as if generated, which no training saw: the score of a perfect generator."""
    kid_images: Annotated[int, Field(ge=2)] = 10000
    """Features of the reference kept for the kernel distance, at most."""
    blocks: Annotated[int, Field(ge=2)] = 10
    """Blocks of the jackknife of the noise floor's standard errors; fewer where each has fewer than two images."""
    extractors: Annotated[list[Literal["in_domain", "inception", "dinov2", "clip"]], Field(min_length=1)] = [
        "in_domain"
    ]
    """Feature networks; in_domain: train_extractor's network; inception: the network of FID; dinov2; clip: CMMD's."""
    inception: Inception = Inception()
    """Weights of FID's network."""
    dinov2: Dinov2 = Dinov2()
    """Weights of DINOv2."""
    clip: ClipFile = ClipFile()
    """Weights of the CLIP of CMMD."""

    @model_validator(mode="after")
    def _sensible(self) -> "ReferenceStats":
        if self.held_out == self.split:
            raise ValueError(f"held_out ({self.held_out}) must be another split than split")
        if len(set(self.extractors)) != len(self.extractors):
            raise ValueError("extractors holds a name twice")
        return self


class Params(Section):
    """What dvc.yaml gives to `reference_stats`."""

    run: Run
    reference_stats: ReferenceStats
