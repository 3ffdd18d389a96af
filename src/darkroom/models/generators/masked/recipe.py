"""Trains the bidirectional transformer on masked codes."""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from darkroom.device import to_device
from darkroom.models.generators.codes.recipe import CodeRecipe, correct, cross_entropy
from darkroom.models.generators.masked.sample import MaskedSampler
from darkroom.models.generators.masked.schedule import masked_fraction
from darkroom.training.recipe import Batch


class MaskedRecipe(CodeRecipe):
    """L = -Σ w_t log p(c_t | unmasked codes, y) / E[Σ w_t], w_t 1 for masked codes and `unmasked` for the others.

    The expected sum of weights, not that of the batch, so that the loss of an image does not depend on the others. Of T
    codes max(1, round(γ(u) T)) are masked, γ the schedule and u uniform: Chang et al., "MaskGIT", 2022, arXiv
    2202.04200; Chang et al., "MUSE", 2023, arXiv 2301.00704.
    """

    causal = False
    sampler_class = MaskedSampler

    def _losses(self, batch: Batch, stream: str, label_dropout: float) -> dict[str, Tensor]:
        loss, tokens = self.settings.loss, self.model.config.tokens
        codes, condition, uniform = self._drawn(batch, stream, label_dropout, 1 + tokens)
        count = np.maximum(1, (masked_fraction(loss.schedule, uniform[:, 0]) * tokens).round())
        ranks = uniform[:, 1:].argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        masked = to_device(ranks < count[:, None], codes.device)
        training = stream == "train"
        condition = self.words_hidden(batch, condition) if training else condition
        logits, _ = self.modules[self.name](codes.masked_fill(masked, self.model.mask), condition)
        nats = cross_entropy(logits, codes, loss.label_smoothing if training else 0.0)
        unmasked = loss.unmasked if training else 0.0
        weights = torch.where(masked, 1.0, unmasked)
        expected = tokens * (self.fraction + unmasked * (1 - self.fraction))
        hits = (correct(logits, codes) * masked).sum(dim=1) / masked.sum(dim=1)
        return {"loss": (nats * weights).sum(dim=1) / expected, "accuracy": hits}

    @cached_property
    def fraction(self) -> float:
        """The mean of the schedule: the expected fraction of masked codes."""
        return float(masked_fraction(self.settings.loss.schedule, (np.arange(10_000) + 0.5) / 10_000).mean())
