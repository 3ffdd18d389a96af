"""The section of the tokenizer `dvae`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.models.tokenizers.kind_settings import Codes, Kind
from darkroom.params.numbers import Positive
from darkroom.params.section import Section

Relaxation = Literal["soft", "straight_through", "reinmax"]


class Temperature(Section):
    """How the temperature of the gumbel-softmax falls from `start` to `minimum`."""

    rule: Literal["exponential", "cosine", "compounding"]
    start: Annotated[float, Field(gt=0)]
    minimum: Annotated[float, Field(gt=0)]
    rate: Annotated[float, Field(gt=0)] | None
    images: Positive | None

    @model_validator(mode="after")
    def _consistent(self) -> "Temperature":
        """Each rule has what it needs, and no value stands here that nothing reads."""
        if self.minimum > self.start:
            raise ValueError(f"minimum ({self.minimum}) must not be above start ({self.start})")
        key, other = ("images", "rate") if self.rule == "cosine" else ("rate", "images")
        if getattr(self, key) is None:
            raise ValueError(f"rule {self.rule} needs {key}")
        if getattr(self, other) is not None:
            raise ValueError(f"{other} is not read by the rule {self.rule}: leave it empty")
        return self


class DVAE(Kind):
    """The discrete VAE of DALL-E: every place of the latent is one of `codebook_size` vectors."""

    codebook_size: Codes
    codebook_dim: Positive
    layers: Positive
    width: Positive
    residual_blocks: Annotated[int, Field(ge=0)]
    alpha: Literal["signed", "unit"]
    straight_through: bool
    reinmax: bool
    temperature: Temperature
    reconstruction: Literal["mse", "smooth_l1"]
    kl_reduction: Literal["per_position", "sum"]
    kl_weight: Annotated[float, Field(ge=0)]
    kl_warmup: Annotated[int, Field(ge=0)]

    @property
    def factor(self) -> int:
        """How many pixels stand behind one place of the latent: each layer halves the resolution."""
        return int(2**self.layers)

    @property
    def relaxation(self) -> Relaxation:
        """What stands for the choice of a code in training."""
        if self.reinmax:
            return "reinmax"
        return "straight_through" if self.straight_through else "soft"

    @model_validator(mode="after")
    def _hard(self) -> "DVAE":
        if self.reinmax and not self.straight_through:
            raise ValueError(
                "reinmax is a gradient for hard choices: set straight_through to true, or reinmax to false"
            )
        return self
