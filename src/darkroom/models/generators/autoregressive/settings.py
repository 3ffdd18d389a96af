"""The sections of the generator `autoregressive`: under `train_generator` and under `sample_generator`."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from darkroom.diffusion.settings import Probability
from darkroom.models.generators.codes.settings import CodeLoss, CodeSampling, OfCodes
from darkroom.params.section import Fraction


class Loss(CodeLoss):
    """The order of the codes, and the terms of the loss."""

    order: Literal["raster", "annealed"] = "raster"
    """raster: row by row (DALL-E); annealed: random orders at first, raster at the end (RAR)."""
    random_until: Probability = 0.5
    """order annealed: fraction of the training until which every order is random."""
    raster_from: Probability = 0.75
    """order annealed: fraction of the training from which every order is raster."""
    text: Fraction = 0.125
    """condition caption: weight of the loss of the caption's tokens, of 1 in all; 0.125 in DALL-E."""

    READ_WITH: ClassVar = {"random_until": ("order", "annealed"), "raster_from": ("order", "annealed")}

    def _misfits(self) -> Iterator[str]:
        if self.random_until > self.raster_from:
            yield f"random_until ({self.random_until}) must not be above raster_from ({self.raster_from})"


class Autoregressive(OfCodes):
    """A causal transformer over codes, one after another.

    sampling: for grids and evaluations while training.
    """

    causal = True

    loss: Loss = Loss.model_construct()
    """Order of the codes, and the terms of the loss."""
    sampling: CodeSampling = CodeSampling.model_construct()
    """Sampling of evaluations, and of the grids while training."""

    READ_WITH: ClassVar = {
        "loss.text": ("model.condition", "caption"),
        "loss.word_dropout": ("model.condition", "caption"),
    }


class AutoregressiveSampling(CodeSampling):
    """How codes are drawn, one after another."""
