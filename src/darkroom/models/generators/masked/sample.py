"""Masked codes, unmasked in a few steps, in the order of the Halton sequence or of the network's confidence."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor

from darkroom.diffusion.denoiser import guided_halves
from darkroom.models.generators.codes.sample import CodeSampler, drawn, filtered, guides, scale_at
from darkroom.models.generators.conditions import Condition, with_null
from darkroom.models.generators.masked.schedule import masked_fraction
from darkroom.models.generators.masked.settings import MaskedSampling
from darkroom.models.sampled_codes import gumbel
from darkroom.rng import random_numbers

_AT_ONCE = 2**16  # logits in float64 at once: of all codes of large codebooks they would need much memory


class MaskedSampler(CodeSampler):
    """A bidirectional transformer over codes, and the tokenizer that decodes them.

    known: codes that stay, of an image to be completed, int64 (h, w), -1 where they are drawn; None: all are drawn.
    """

    known: Tensor | None = None

    @torch.no_grad()
    def codes(self, numbers: Sequence[int], condition: Condition, seed: int, settings: MaskedSampling) -> Tensor:
        """Return codes, int64 (N, h, w).

        In each step masked codes are drawn from their probabilities; those that come first in the order stay. The order
        is that of an evenly spread sequence of places (Besnier et al., 2025, arXiv 2503.17076), or of the confidence:
        log p of the drawn code, plus Gumbel noise times `choice_temperature` times the fraction of steps that are left
        (Chang et al., 2022, arXiv 2202.04200).
        """
        model, config = self.model, self.model.config
        n, guided = len(numbers), guides(settings, condition)
        condition = with_null(condition, model.null_label) if guided else condition
        codes = torch.full((n, config.tokens), model.mask, device=self.device)
        if self.known is not None:
            known = self.known.flatten().to(self.device)
            codes = torch.where(known < 0, codes, known)
        rank = torch.from_numpy(halton_rank(config.side)).double()  # (T,)
        counts = masked_counts(codes, model.mask, settings)
        for step, masked in enumerate(counts):
            logits = model(torch.cat([codes, codes]) if guided else codes, condition)[0]
            if guided:
                logits = guided_halves(logits, scale_at(settings, step / max(1, len(counts) - 1)))
            hidden = (codes == model.mask).cpu()
            if settings.order == "halton":
                stays = first_hidden(hidden, -rank.expand(n, -1), masked)
                guesses = self._guessed(logits, stays, numbers, seed, step, settings)[0]
            else:
                guesses, score = self._guessed(logits, hidden, numbers, seed, step, settings)
                noise = torch.from_numpy(gumbel(seed, "masked/choice", numbers, step, settings.steps, config.tokens))
                score += settings.choice_temperature * (1 - (step + 1) / len(counts)) * noise
                stays = first_hidden(hidden, score, masked)
            codes = torch.where(stays.to(self.device), guesses.to(self.device), codes)
        return rearrange(codes, "n (h w) -> n h w", h=config.side)

    def _guessed(
        self, logits: Tensor, where: Tensor, numbers: Sequence[int], seed: int, step: int, settings: MaskedSampling
    ) -> tuple[Tensor, Tensor]:
        """Return a code for each place of `where`, bool (N, T), and its unfiltered log p; elsewhere 0.

        Both on the CPU, int64 and float64 (N, T).
        """
        places = [number * settings.steps + step for number in numbers]
        uniform = random_numbers(seed, "masked/codes", places, 0, where.shape[1])[1].ravel()
        guesses, confidence = torch.zeros(where.numel(), dtype=torch.int64), torch.zeros(where.numel()).double()
        for at in where.flatten().nonzero()[:, 0].split(-(-_AT_ONCE // logits.shape[-1])):
            exact = logits.flatten(0, 1).index_select(0, at.to(logits.device))
            exact = (exact.cpu() if exact.device.type == "mps" else exact).double()  # (M, K); it has no float64
            guess = drawn(filtered(exact, settings), uniform[at.numpy()])
            guesses[at] = guess.cpu()
            confidence[at] = exact.log_softmax(dim=-1).gather(1, guess[:, None])[:, 0].cpu()
        return guesses.view_as(where), confidence.view_as(where)


def first_hidden(hidden: Tensor, score: Tensor, masked: Tensor) -> Tensor:
    """Return the places of the highest scores among the hidden ones, all but `masked` (N,) of them, bool (N, T)."""
    place = score.masked_fill(~hidden, torch.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return hidden & (place < hidden.shape[1] - masked[:, None])


def masked_counts(codes: Tensor, mask: int, settings: MaskedSampling) -> list[Tensor]:
    """Return how many codes of each image are still masked after each step, int64 (N,), at least one fewer each."""
    left = start = (codes == mask).sum(dim=1).cpu()
    counts = []
    for step in range(settings.steps):
        fraction = float(masked_fraction(settings.schedule, np.array((step + 1) / settings.steps)))
        left = torch.minimum((fraction * start).round().long(), (left - 1).clamp(min=0))
        counts.append(left)
        if not left.any():
            break
    counts[-1] = torch.zeros_like(left)
    return counts


@cache
def halton_rank(side: int) -> NDArray[np.int64]:
    """Return the rank of each place of a side x side grid, row by row, (side²,), in the Halton sequence.

    Point i is the radical inverse of i in base 2 along a row and in base 3 along a column (Halton, 1960); a place has
    the rank of the first point in it.
    """
    ranks: dict[int, int] = {}
    number = 0
    while len(ranks) < side**2:
        column, row = (_scaled_inverse(number, base, side) for base in (2, 3))
        ranks.setdefault(row * side + column, len(ranks))
        number += 1
    return np.array([ranks[place] for place in range(side**2)])


def _scaled_inverse(number: int, base: int, size: int) -> int:
    """Return ⌊size φ⌋, φ in [0, 1) the number with its digits mirrored at the point; exact."""
    mirrored, scale = 0, 1
    while number:
        number, digit = divmod(number, base)
        mirrored, scale = mirrored * base + digit, scale * base
    return mirrored * size // scale
