"""The section of the tokenizer `kl`."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from darkroom.models.tokenizers.kind_settings import Kind
from darkroom.models.tokenizers.loss_settings import Adversarial, Equivariance, Perceptual, require_fit
from darkroom.params.section import Positive


class KL(Kind):
    """The KL autoencoder: diffusers' AutoencoderKL and its losses."""

    discrete: ClassVar[bool] = False

    channels: Annotated[list[Positive], Field(min_length=1)] = [32, 64, 64]
    """Width of each level; each but the last halves the resolution."""
    layers_per_block: Positive = 1
    """Residual layers in each level."""
    norm_groups: Positive = 16
    """Groups of the group norms."""
    latent_channels: Positive = 4
    """Channels of the latent."""
    reconstruction: Literal["mse", "l1", "huber"] = "mse"
    """Loss of the reconstruction."""
    huber_delta: Annotated[float, Field(gt=0)] = 1.0
    """huber: the error, of 2 at most, from which the loss grows linearly."""
    learn_variance: bool = False
    """Learn the variance of the output too, as LDM; it then weighs the reconstruction against the other terms."""
    kl_weight: Annotated[float, Field(ge=0)] = 0.0001
    """Weight of the KL term, per latent element."""
    perceptual: Perceptual = Perceptual()
    """Perceptual loss: a distance in the features of a frozen network."""
    adversarial: Adversarial = Adversarial()
    """Adversarial loss: a discriminator of patches."""
    equivariance: Equivariance = Equivariance()
    """Equivariance of latents under scales and quarter turns."""

    @property
    def factor(self) -> int:
        """How many pixels stand behind one place of the latent: each level but the last halves the resolution."""
        return int(2 ** (len(self.channels) - 1))

    @property
    def whole_batch(self) -> bool:
        """Whether the discriminator's weight is of the whole batch."""
        return self.adversarial.whole_batch

    def unfit(self, image_shape: tuple[int, int, int], batch: int) -> str | None:
        """Return why the latents of images of shape (C, H, W) cannot be transformed; None: they can."""
        return self.equivariance.unfit(image_shape[1] // self.factor)

    @model_validator(mode="after")
    def _groups(self) -> "KL":
        for width in self.channels:
            if width % self.norm_groups:
                raise ValueError(f"norm_groups ({self.norm_groups}) must divide every width in channels, not {width}")
        require_fit(self.perceptual, self.adversarial)
        return self
