"""Sections that several kinds of tokenizers share: perceptual loss, discriminator, equivariance."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.section import Fraction, Positive, Section, Weight

WINDOW = 4  # pixels, side of what the discriminator's last layer sees, at its lowest resolution

SMALLEST = {"lpips": 16, "vgg16": 32}  # pixels a side, so that one is left at the coarsest level that is compared

TEACHER = "models/teacher"  # what train_teacher writes

Network = Literal["none", "teacher", "lpips", "vgg16"]


class Perceptual(Section):
    """A distance in the features of a frozen network, which `train_tokenizer.teacher` names the weights of."""

    network: Network = "none"
    """Frozen network: teacher (models/teacher), lpips or vgg16 (features of VGG16, as MUSE); weights: `teacher`."""
    weight: Weight = 0.0
    """Weight of the perceptual loss; 0.0: none."""

    @property
    def active(self) -> bool:
        """Whether there is a perceptual loss."""
        return self.network != "none" and self.weight > 0

    @property
    def smallest(self) -> int:
        """Pixels a side of the smallest images that it can compare: one is left after the network's poolings."""
        return SMALLEST.get(self.network, 1)

    @model_validator(mode="after")
    def _named(self) -> "Perceptual":
        if self.network == "none" and self.weight:
            raise ValueError("a weight needs a network: teacher, lpips or vgg16; without one it is 0.0")
        if self.network != "none" and not self.weight:
            raise ValueError(f"network is {self.network}, and does nothing at weight 0.0: raise it, or take none")
        return self


class Adversarial(Section):
    """A discriminator of patches, and what it adds to the tokenizer's loss."""

    weight: Weight = 0.0
    """Weight of the adversarial loss; 0.0: no discriminator."""
    loss: Literal["hinge", "hinge_sum", "bce"] = "hinge"
    """Loss of the discriminator; hinge_sum is without the factor 1/2, as MUSE."""
    start: Annotated[int, Field(ge=0)] = 4000
    """Images before the discriminator's training starts."""
    adaptive: Literal["none", "taming", "perceptual"] = "taming"
    """Adaptive weight: by the gradients of the other losses (taming), of the perceptual loss alone (perceptual, as
    MUSE), or none."""
    channels: Annotated[list[Positive], Field(min_length=1)] = [32, 64, 64]
    """Width of each level of the discriminator; each but the first halves the resolution."""
    norm_groups: Positive = 16
    """Groups of the discriminator's group norms."""
    rate: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate of the discriminator, as a factor of the training's."""
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = (0.5, 0.9)
    """Betas of the discriminator's AdamW."""
    clip_norm: Annotated[float, Field(gt=0)] | Literal["none"] | None = None
    """Largest gradient norm of the discriminator; none: not clipped; null: as the training."""
    gradient_penalty: Weight = 0.0
    """Weight of (norm of the discriminator's gradient at real images - 1)²; 10 in MUSE."""
    gradient_penalty_every: Positive = 4
    """Every how many steps of the discriminator the penalty is computed."""

    @property
    def active(self) -> bool:
        """Whether there is a discriminator."""
        return self.weight > 0

    @property
    def whole_batch(self) -> bool:
        """Whether the weight follows from gradients of the whole batch, which `run.micro_batch` then does not cut."""
        return self.active and self.adaptive != "none"

    @property
    def smallest(self) -> int:
        """Pixels a side of the smallest images that the discriminator takes: its last window is left."""
        return int(WINDOW * 2 ** (len(self.channels) - 1))

    @model_validator(mode="after")
    def _groups(self) -> "Adversarial":
        for width in self.channels[1:]:  # the first level has no norm
            if width % self.norm_groups:
                raise ValueError(f"norm_groups ({self.norm_groups}) must divide every width in channels, not {width}")
        return self


class Equivariance(Section):
    """Equivariance of latents: in some steps the decoder makes the transformed image of a transformed latent."""

    probability: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction of optimizer steps whose latents and images are transformed; 0.0: none; EQ-VAE: 0.5."""
    scale: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Smallest scale, drawn from here to below 1 so that latents have whole sizes; 1.0: quarter turns alone."""
    turns: bool = True
    """Turn them too, by one to three quarters."""

    @property
    def active(self) -> bool:
        """Whether there are transformed steps."""
        return self.probability > 0

    def sides(self, side: int) -> range:
        """Return the sides of scaled latents, in places, where whole ones have `side`; empty: none is scaled."""
        return range(math.ceil(round(self.scale * side, 2)), side)  # 0.6667 of 3 places are 2

    def unfit(self, side: int) -> str | None:
        """Return why latents of so many places a side cannot be transformed; None: they can."""
        if not self.active or self.sides(side) or (self.scale == 1 and side > 1):
            return None
        if side == 1:
            return "a latent of one place has no other size or side: set `equivariance.probability` to 0.0"
        return (
            f"`equivariance.scale` is {self.scale}, and a latent of {side} x {side} places has no smaller whole size "
            f"of that scale or more: take {(side - 1) / side:.4} at most, or 1.0 for quarter turns alone"
        )

    @model_validator(mode="after")
    def _transforms(self) -> "Equivariance":
        for name in ("scale", "turns"):
            if not self.active and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} is read where probability is above 0.0 only: give that a number, or take {name} out"
                )
        if self.active and self.scale == 1 and not self.turns:
            raise ValueError("a probability needs transforms: lower scale, or set turns to true")
        return self


def require_fit(perceptual: Perceptual, adversarial: Adversarial) -> None:
    """Check that the adaptive weight has the term it is computed from; for the kinds' validators.

    Raises:
        ValueError: it follows from the perceptual loss, and there is none.
    """
    if adversarial.active and adversarial.adaptive == "perceptual" and not perceptual.active:
        raise ValueError("adversarial.adaptive is perceptual, and there is no perceptual loss: take taming or none")
