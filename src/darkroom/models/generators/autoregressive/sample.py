"""Codes one after another, row by row, with a cache of keys and values."""

import math
from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional

from darkroom.diffusion.denoiser import guided_halves
from darkroom.models.generators.autoregressive.settings import AutoregressiveSampling
from darkroom.models.generators.codes.sample import CodeSampler, drawn, filtered, guides, scale_at
from darkroom.models.generators.conditions import Condition, with_null
from darkroom.rng import random_numbers


class AutoregressiveSampler(CodeSampler):
    """A causal transformer over codes, and the tokenizer that decodes them."""

    @torch.no_grad()
    def codes(
        self, numbers: Sequence[int], condition: Condition, seed: int, settings: AutoregressiveSampling
    ) -> Tensor:
        """Return codes, int64 (N, h, w): each is drawn from its probabilities given those before it.

        The uniform number of a draw follows from (seed, number, place).
        """
        tokens, chosen = self.model.config.tokens, list[Tensor]()
        uniform = random_numbers(seed, "autoregressive", numbers, 0, tokens)[1]
        guided = guides(settings, condition)
        condition = with_null(condition, self.model.null_label) if guided else condition
        logits, caches = self.model.begin(condition, len(numbers) * (1 + guided))
        for place in range(tokens):
            if place:
                before = torch.cat([chosen[-1], chosen[-1]]) if guided else chosen[-1]
                logits = self.model.next(before, place - 1, caches)
            given = guided_halves(logits, scale_at(settings, place / max(1, tokens - 1))) if guided else logits
            given = given.cpu() if given.device.type == "mps" else given  # it has no float64
            chosen.append(drawn(filtered(given.double(), settings), uniform[:, place]).to(self.device))
        return rearrange(torch.stack(chosen, dim=1), "n (h w) -> n h w", h=self.model.config.side)

    @torch.no_grad()
    def code_bits(self, codes: Tensor, condition: Condition) -> Tensor:
        """Return -1/T Σ log2 p(c_t | c_<t, y) of codes (N, h, w), without guidance, (N,) float64."""
        flat = codes.flatten(1).long()
        logits = self.model(flat, condition)[0]
        nats = [functional.cross_entropy(*each, reduction="none") for each in zip(logits, flat, strict=True)]
        return torch.stack(nats).cpu().double().mean(dim=1) / math.log(2)
