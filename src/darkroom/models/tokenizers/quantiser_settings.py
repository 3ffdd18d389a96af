"""The sections of the quantisers, which kinds with a codebook share."""

from typing import Annotated, Literal

from pydantic import Field

from darkroom.params.numbers import Weight
from darkroom.params.section import Section

# How the gradient passes the quantiser: turned and stretched as the vector was, or as it is.
Gradient = Literal["rotation", "straight_through"]


class VQ(Section):
    """A codebook of means of the vectors that took each code."""

    cosine: bool
    decay: Annotated[float, Field(ge=0, lt=1)]
    kmeans_init: bool
    dead_below: Weight
    gradient: Gradient
    commitment_weight: Weight


class SimVQ(Section):
    """A codebook that is a trained linear map of fixed random vectors."""

    gradient: Gradient
    codebook_weight: Weight
    commitment_weight: Weight


class Binary(Section):
    """A codebook of signs: lookup-free or binary spherical."""

    entropy_weight: Weight
    diversity: Weight
    inverse_temperature: Annotated[float, Field(gt=0)]
    commitment_weight: Weight


class FSQ(Section):
    """A codebook of rounded numbers."""

    levels: Annotated[list[Annotated[int, Field(ge=3)]], Field(min_length=1)]
