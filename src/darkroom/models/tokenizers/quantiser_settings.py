"""The sections of the quantisers, which kinds with a codebook share."""

from typing import Annotated, Literal

from pydantic import Field

from darkroom.params.numbers import Weight
from darkroom.params.section import Section

# How the gradient passes the quantiser: turned and stretched as the vector was, or as it is.
Gradient = Literal["rotation", "straight_through"]


class VQ(Section):
    """A codebook of means of the vectors that took each code."""

    cosine: bool = True
    """Compare directions, on the unit sphere, and not distances."""
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the moving averages in each optimizer step."""
    kmeans_init: bool = True
    """Initialise the codebook by k-means over the latents of the first batch."""
    dead_below: Weight = 1.0
    """A code used less often in a batch, on average, is replaced by a latent of the batch; 0.0: never."""
    gradient: Gradient = "rotation"
    """How the gradient passes the quantiser."""
    commitment_weight: Weight = 1.0
    """Weight of |latent - its code|², per element."""


class SimVQ(Section):
    """A codebook that is a trained linear map of fixed random vectors."""

    gradient: Gradient = "rotation"
    """How the gradient passes the quantiser."""
    codebook_weight: Weight = 1.0
    """Weight of |latent - its code|² as a loss of the codebook."""
    commitment_weight: Weight = 0.25
    """Weight of |latent - its code|² as a loss of the encoder."""


class Binary(Section):
    """A codebook of signs: lookup-free or binary spherical."""

    entropy_weight: Weight = 0.1
    """Weight of the entropy of a position's soft code, less `diversity` times that of all codes."""
    diversity: Weight = 1.0
    """Weight of the entropy of all codes against that of each position."""
    inverse_temperature: Annotated[float, Field(gt=0)] = 100.0
    """Inverse temperature of the soft codes."""
    commitment_weight: Weight = 0.0
    """Weight of |latent - its code|², per element."""


class LFQ(Binary):
    """A codebook of the signs of unbounded latents."""

    commitment_weight: Weight = 0.25
    """Weight of |latent - its code|², per element; 0.0 in MUSE: latents may then grow without bound."""


class FSQ(Section):
    """A codebook of rounded numbers."""

    levels: Annotated[list[Annotated[int, Field(ge=3)]], Field(min_length=1)] = [4, 4, 4, 4]
    """Levels of each channel; their product is codebook_size."""
