"""Trains the bidirectional transformer on masked codes."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from darkroom.device import to_device
from darkroom.models.generators.codes.recipe import CodeRecipe, correct
from darkroom.models.generators.masked.sample import MaskedSampler
from darkroom.models.generators.masked.schedule import masked_fraction
from darkroom.training.recipe import Batch


class MaskedRecipe(CodeRecipe):
    """L = -Σ w_t log p(c_t | unmasked codes, y) / Σ w_t, w_t 1 for masked codes and `unmasked` for the others.

    Of T codes max(1, round(γ(u) T)) are masked, γ the schedule and u uniform: Chang et al., "MaskGIT", 2022, arXiv
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
        logits, _ = self.modules[self.name](codes.masked_fill(masked, self.model.mask), condition)
        smoothing = loss.label_smoothing if stream == "train" else 0.0
        nats = functional.cross_entropy(logits.float().mT, codes, reduction="none", label_smoothing=smoothing)
        weights = torch.where(masked, 1.0, loss.unmasked if stream == "train" else 0.0)
        hits = (correct(logits, codes) * masked).sum(dim=1) / masked.sum(dim=1)
        return {"loss": (nats * weights).sum(dim=1) / weights.sum(dim=1), "accuracy": hits}
