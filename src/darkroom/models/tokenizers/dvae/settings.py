"""The section of the tokenizer `dvae`, and the shape of its network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from darkroom.models.tokenizers.sections import Codes, Kind
from darkroom.params.section import Positive, Section

Relaxation = Literal["soft", "straight_through", "reinmax"]


class Temperature(Section):
    """How the temperature of the gumbel-softmax falls from `start` to `minimum`."""

    rule: Literal["exponential", "cosine", "compounding"] = "cosine"
    """How the temperature falls; compounding is dalle-pytorch's."""
    start: Annotated[float, Field(gt=0)] = 1.0
    """Temperature of the first optimizer step."""
    minimum: Annotated[float, Field(gt=0)] = 0.0625
    """Lowest temperature."""
    rate: Annotated[float, Field(gt=0)] | None = None
    """exponential, compounding: decrease of the logarithm in an optimizer step."""
    images: Positive | None = 7680
    """cosine: images until the minimum."""

    READ_WITH = {"rate": ("rule", "exponential", "compounding"), "images": ("rule", "cosine")}

    def _misfits(self) -> Iterator[str]:
        if self.minimum > self.start:
            yield f"minimum ({self.minimum}) must not be above start ({self.start})"
        key = "images" if self.rule == "cosine" else "rate"
        if getattr(self, key) is None:
            yield f"rule {self.rule} needs {key}"


class DVAE(Kind):
    """The discrete VAE of DALL-E: every position of the latent is one of `codebook_size` vectors."""

    codebook_size: Codes = 256
    """Number of codes."""
    codebook_dim: Positive = 8
    """Length of a code: channels of the latent."""
    layers: Positive = 2
    """Convolutions of the encoder that halve the resolution."""
    width: Positive = 48
    """Channels of the other convolutions."""
    residual_blocks: Annotated[int, Field(ge=0)] = 1
    """Residual blocks of the encoder, and of the decoder."""
    alpha: Literal["signed", "unit"] = "signed"
    """Range of the alpha channel of RGBA: signed, -1 to 1 like the colours, or unit, 0 to 1 as in dalle-pytorch."""
    mean: Annotated[list[float], Field(min_length=1)] | None = None
    """Means by which the channels of pixels in [0, 1] are normalised; null: 0.5, for alpha see `alpha`."""
    std: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)] | None = None
    """Standard deviations by which they are then divided; with mean 0 and std 1 pixels are unchanged."""
    straight_through: bool = False
    """In training sample one code for each position instead of a mixture."""
    reinmax: bool = False
    """With straight_through: the gradient of ReinMax, which is exact to second order."""
    temperature: Temperature = Temperature.model_construct()
    """Temperature of the gumbel-softmax in training."""
    reconstruction: Literal["mse", "smooth_l1"] = "mse"
    """Loss of the reconstruction."""
    kl_reduction: Literal["per_position", "sum"] = "per_position"
    """How the KL to the uniform distribution is reduced; sum: over batch and positions, as in dalle-pytorch."""
    kl_weight: Annotated[float, Field(ge=0)] = 0.01
    """Weight of the KL term: without it few codes are used."""
    kl_warmup: Annotated[int, Field(ge=0)] = 0
    """Images during which the weight of the KL term rises from 0."""

    @property
    def factor(self) -> int:
        """The downsampling factor of the latent: each layer halves the resolution."""
        return int(2**self.layers)

    @property
    def relaxation(self) -> Relaxation:
        """The relaxation of the choice of a code in training."""
        if self.reinmax:
            return "reinmax"
        return "straight_through" if self.straight_through else "soft"

    def unfit(self, image_shape: tuple[int, int, int], batch: int) -> str | None:
        """Return why the section does not fit images of shape (C, H, W); None: it does."""
        for key in ("mean", "std"):
            values = getattr(self, key)
            if values is not None and len(values) != image_shape[0]:
                return (
                    f"`{key}` has {len(values)} numbers, but the images have {image_shape[0]} channels "
                    "(`ingest.channels`): set one for each"
                )
        return None

    READ_WITH = {"reinmax": ("straight_through", True)}

    def _misfits(self) -> Iterator[str]:
        if (self.mean is None) != (self.std is None):
            yield "mean and std must be set together: set both, or leave both empty"
        if self.mean is not None and self.alpha != "signed":
            yield "alpha has no effect with mean and std: leave it at signed"


@dataclass(frozen=True)
class DVAEConfig:
    """The shape of a network under dalle-pytorch's names, and its range of pixels.

    alpha: range of the alpha channel. mean, std: of each channel of pixels in [0, 1]; None: see `alpha`.
    """

    image_size: int
    channels: int
    num_tokens: int
    codebook_dim: int
    num_layers: int
    hidden_dim: int
    num_resnet_blocks: int
    alpha: Literal["signed", "unit"]
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
