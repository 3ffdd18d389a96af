"""The sections that `train_tokenizer` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params import Section
from darkroom.schemas.numbers import PartNames, Positive
from darkroom.schemas.run import Run
from darkroom.schemas.training import Training


class KL(Section):
    """The KL autoencoder: diffusers' AutoencoderKL and its two losses."""

    channels: Annotated[list[Positive], Field(min_length=1)]
    layers_per_block: Positive
    norm_groups: Positive
    latent_channels: Positive
    reconstruction: Literal["mse", "l1"]
    kl_weight: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _groups(self) -> "KL":
        for width in self.channels:
            if width % self.norm_groups:
                raise ValueError(f"norm_groups ({self.norm_groups}) must divide every width in channels, not {width}")
        return self


class TrainTokenizer(Section):
    """Which tokenizer, and how it is trained. Only the chosen kind's section is a dependency."""

    kind: Literal["kl"]
    parts: PartNames | None = None  # read by `catalog`, so that a part that is not named changes nothing here
    common: Training
    kl: KL | None = None

    @model_validator(mode="after")
    def _chosen(self) -> "TrainTokenizer":
        if getattr(self, self.kind) is None:
            raise ValueError(f"kind is {self.kind}, and the section `{self.kind}` is missing")
        return self


class Params(Section):
    """What dvc.yaml gives to `train_tokenizer`."""

    run: Run
    train_tokenizer: TrainTokenizer
