"""The library's own recipes of the four trained tokenizers, small, with all that their checkpoints could forget."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from darkroom.models.evaluators.teacher import Teacher
from darkroom.models.tokenizers.dvae.recipe import DVAERecipe
from darkroom.models.tokenizers.kl.recipe import KLRecipe
from darkroom.models.tokenizers.perceptual import LevelDistance
from darkroom.models.tokenizers.recipe import TokenizerRecipe
from darkroom.models.tokenizers.vq_ar.recipe import VQARRecipe
from darkroom.models.tokenizers.vqgan.recipe import VQGANRecipe
from darkroom.params.training import Training
from darkroom.training.loop import seeded
from models.tokenizers import dvae_reference, making_vq_ar, sections, small_vqgan
from torture.arguments import BATCH

SHAPE = (3, 16, 16)
# A discriminator that begins after some updates, weighed by gradients and punished every second turn.
GAME = {"weight": 0.5, "start": 12 * BATCH, "adaptive": "taming", "gradient_penalty": 10.0, "gradient_penalty_every": 2}


class Pictures:
    """Rows `start` to `stop` of scikit-learn's digits, twice as large, in RGB: `images` uint8 (N, 3, 16, 16)."""

    classes = tuple("0123456789")

    def __init__(self, start: int, stop: int) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        grey = (digits.images[start:stop] * 15).astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2)
        self._images, self._labels = grey[:, None].repeat(3, axis=1), digits.target[start:stop].astype(np.int64)

    def __len__(self) -> int:
        return len(self._images)

    def __getitems__(self, rows: Sequence[int], positions: Any = None) -> dict[str, Any]:
        return {"images": self._images[list(rows)], "labels": self._labels[list(rows)]}

    def keys(self, rows: Sequence[int]) -> list[str]:
        return [f"digit-{row:04d}" for row in rows]


def _teacher() -> LevelDistance:
    with seeded(2):
        return LevelDistance(Teacher(in_channels=3, classes=10, channels=[4, 4], layers=1)).frozen()


def _kl(training: Training, *rows: Pictures) -> TokenizerRecipe:
    """With a perceptual loss and a discriminator: two optimizers, a learned variance, noise in the latent."""
    losses = {"perceptual": sections.perceptual("teacher", 0.5), "adversarial": sections.adversarial(**GAME)}
    return KLRecipe(sections.kl(**losses), training, SHAPE, *rows, _teacher())


def _dvae(training: Training, *rows: Pictures) -> TokenizerRecipe:
    """With a temperature and a weight of the KL that change with the images seen."""
    images = training.images
    temperature = {"rule": "cosine", "start": 1.0, "minimum": 0.1, "rate": None, "images": images * 3 // 4}
    settings = dvae_reference.settings(temperature=temperature, kl_weight=0.05, kl_warmup=images // 2)
    return DVAERecipe(settings, training, SHAPE, *rows)


def _vqgan(training: Training, *rows: Pictures) -> TokenizerRecipe:
    """With a codebook in buffers that begins by k-means, moves by averages and replaces its dead; a discriminator."""
    settings = small_vqgan.section(adversarial=GAME, codebook_size=64)
    return VQGANRecipe(settings, training, SHAPE, *rows)


def _vq_ar(training: Training, *rows: Pictures) -> TokenizerRecipe:
    """With such a codebook, dropout, and classes that are dropped by position."""
    settings = making_vq_ar.settings(codebook_size=64, dropout=0.1, classes=True)
    return VQARRecipe(settings, training, SHAPE, *rows)


MODELS: dict[str, Callable[..., TokenizerRecipe]] = {"kl": _kl, "dvae": _dvae, "vqgan": _vqgan, "vq_ar": _vq_ar}


def tokenizer_recipe(kind: str, training: Training) -> TokenizerRecipe:
    """Return the library's recipe of a kind over digits."""
    with seeded(1):
        return MODELS[kind](training, Pictures(0, 1000), Pictures(1000, 1064))
