"""Trains the causal transformer on codes."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from darkroom.device import to_device
from darkroom.models.evaluators.evaluation import Evaluation
from darkroom.models.generators.autoregressive.sample import AutoregressiveSampler
from darkroom.models.generators.codes.recipe import CodeRecipe, correct, cross_entropy
from darkroom.models.generators.codes.settings import OfCodes
from darkroom.models.generators.conditions import Captioned
from darkroom.models.generators.data import GeneratorData
from darkroom.params.training import Training
from darkroom.training.recipe import Batch


class AutoregressiveRecipe(CodeRecipe):
    """L = -1/T Σ log p(c_t | c_<t, y), and with captions f L_text + (1 - f) L (Ramesh et al., 2021, arXiv 2102.12092).

    Codes are in raster order; or, annealed, a permutation for each image with a probability that falls from 1 to 0
    between two fractions of the training (Yu et al., "RAR", 2024, arXiv 2411.00776, section 3.2).
    """

    causal = True
    sampler_class = AutoregressiveSampler

    @classmethod
    def build(
        cls, settings: OfCodes, training: Training, data: GeneratorData, evaluation: Evaluation | None
    ) -> "AutoregressiveRecipe":
        """Return the recipe with its untrained network."""
        recipe = super().build(settings, training, data, evaluation)
        assert isinstance(recipe, cls)
        recipe.knows_length = recipe.settings.loss.order == "annealed"
        return recipe

    def _losses(self, batch: Batch, stream: str, label_dropout: float) -> dict[str, Tensor]:
        training = stream == "train"
        tokens = self.model.config.tokens
        annealed = training and self.settings.loss.order == "annealed"
        codes, condition, uniform = self._drawn(batch, stream, label_dropout, (1 + tokens) * annealed)
        captions = condition if isinstance(condition, Captioned) else None
        condition = self.words_hidden(batch, condition) if training else condition
        order = to_device(self._orders(batch.positions, uniform), codes.device) if annealed else None
        logits, text = self.modules[self.name](codes, condition, order)
        codes = codes if order is None else codes.gather(1, order)
        loss = cross_entropy(logits, codes).mean(dim=1)
        accuracy = correct(logits, codes).mean(dim=1)
        if text is None:
            return {"loss": loss, "accuracy": accuracy}
        assert captions is not None  # they have logits
        words, fraction = self._text_loss(text, captions), self.settings.loss.text
        return {"loss": fraction * words + (1 - fraction) * loss, "codes": loss, "text": words, "accuracy": accuracy}

    def _orders(self, positions: NDArray[np.int64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the order of the codes of each image, (N, T): random where the first number is small enough."""
        loss, seen = self.settings.loss, positions / self.images
        span = max(loss.raster_from - loss.random_until, 1e-9)
        random = uniform[:, 0] < np.clip((loss.raster_from - seen) / span, 0, 1)
        raster = np.broadcast_to(np.arange(uniform.shape[1] - 1), uniform[:, 1:].shape)
        return np.where(random[:, None], uniform[:, 1:].argsort(axis=1, kind="stable"), raster)

    def _text_loss(self, logits: Tensor, captions: Captioned) -> Tensor:
        """Return the nats per token of each caption after its first, up to its end, (N,); 0 without a caption."""
        numbers = self.model.caption_numbers(captions.tokens)[:, 1:]
        counted = (captions.tokens[:, 1:] > 0) & captions.keep[:, None]
        nats = cross_entropy(logits, numbers)
        return (nats * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
