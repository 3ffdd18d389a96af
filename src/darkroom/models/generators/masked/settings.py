"""The sections of the generator `masked`: under `train_generator` and under `sample_generator`."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from darkroom.models.generators.codes.settings import CodeLoss, CodeSampling, OfCodes
from darkroom.params.section import Fraction, Positive

Schedule = Literal["cosine", "arccos", "linear"]


class Loss(CodeLoss):
    """How many codes are masked, and the terms of the loss."""

    schedule: Schedule = "arccos"
    """Fraction of masked codes for a uniform u: cos(πu/2) (MaskGIT, MUSE), 2/π arccos(u) (Halton-MaskGIT), or 1 - u."""
    label_smoothing: Fraction = 0.1
    """Probability that the target gives to all codes in equal parts."""
    unmasked: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Weight of codes that are not masked, those that are masked have 1; TiTok: 0.1."""


class MaskedSampling(CodeSampling):
    """In which steps and in which order codes are unmasked."""

    steps: Positive = 12
    """Steps of the sampler; at most one per code is used."""
    schedule: Schedule = "arccos"
    """Fraction of codes still masked as a function of the fraction of steps."""
    order: Literal["halton", "confidence"] = "halton"
    """halton: by the Halton sequence, evenly spread; confidence: the most confident codes first (MaskGIT, MUSE)."""
    choice_temperature: Annotated[float, Field(ge=0)] = 4.5
    """order confidence: scale of the Gumbel noise on the confidence, annealed to 0 at the last step."""

    READ_WITH: ClassVar = {"choice_temperature": ("order", "confidence")}


class Masked(OfCodes):
    """A bidirectional transformer that predicts masked codes.

    sampling: for grids and evaluations while training.
    """

    fills = True

    loss: Loss = Loss.model_construct()
    """Masking, and the terms of the loss."""
    sampling: MaskedSampling = MaskedSampling.model_construct()
    """Sampling of evaluations, and of the grids while training."""

    READ_WITH: ClassVar = {"loss.word_dropout": ("model.condition", "caption")}
