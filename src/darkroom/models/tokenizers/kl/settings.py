"""The section of the tokenizer `kl`."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from darkroom.models.tokenizers.kind_settings import Kind
from darkroom.models.tokenizers.loss_settings import Adversarial, Perceptual, require_fit
from darkroom.params.numbers import Positive


class KL(Kind):
    """The KL autoencoder: diffusers' AutoencoderKL and its losses."""

    discrete: ClassVar[bool] = False

    channels: Annotated[list[Positive], Field(min_length=1)]
    layers_per_block: Positive
    norm_groups: Positive
    latent_channels: Positive
    reconstruction: Literal["mse", "l1", "huber"]
    huber_delta: Annotated[float, Field(gt=0)]
    learn_variance: bool
    kl_weight: Annotated[float, Field(ge=0)]
    perceptual: Perceptual
    adversarial: Adversarial

    @property
    def factor(self) -> int:
        """How many pixels stand behind one place of the latent: each level but the last halves the resolution."""
        return int(2 ** (len(self.channels) - 1))

    @property
    def whole_batch(self) -> bool:
        """Whether the discriminator's weight is of the whole batch."""
        return self.adversarial.whole_batch

    @model_validator(mode="after")
    def _groups(self) -> "KL":
        for width in self.channels:
            if width % self.norm_groups:
                raise ValueError(f"norm_groups ({self.norm_groups}) must divide every width in channels, not {width}")
        require_fit(self.perceptual, self.adversarial)
        return self
