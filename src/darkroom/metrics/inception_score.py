"""Inception Score: how confidently each image is classified, and how many classes occur.

IS = exp( 1/N Σᵢ KL(pᵢ | m) ),   pᵢ = softmax(logits of image i),   m = 1/N Σᵢ pᵢ

so that log IS = 1/N Σᵢ Σ_c p_ic log p_ic - Σ_c m_c log m_c: sums over images.

Source: Salimans et al., "Improved techniques for training GANs", 2016. The logits are Inception's without the bias of
its last layer, as in the original program and in ADM's.
"""

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.moments import require_finite
from darkroom.metrics.score import count_blocks
from darkroom.metrics.uncertainty import Jackknife, assign_blocks, jackknife, left_out


class InceptionScore:
    """Float64 sums of B blocks of images: `count` (B,), `total` (B, C) = Σ p, `negative` (B,) = Σ p log p."""

    def __init__(self, classes: int, blocks: int = 1) -> None:
        self.count = torch.zeros(blocks, dtype=torch.float64)
        self.total = torch.zeros(blocks, classes, dtype=torch.float64)
        self.negative = torch.zeros(blocks, dtype=torch.float64)

    @torch.no_grad()
    def update(self, logits: Tensor, block: Tensor) -> None:
        """Add logits (N, C), of any float dtype, of images in blocks (N,) int64, each in [0, B).

        Raises:
            DarkroomError: logits that are not finite.
        """
        require_finite(logits, "logits")
        log_p = logits.double().cpu().log_softmax(dim=1)
        p = log_p.exp()
        self.count.index_add_(0, block, torch.ones(len(block), dtype=torch.float64))
        self.total.index_add_(0, block, p)
        self.negative.index_add_(0, block, (p * log_p).sum(1))

    def _score(self, keep: Tensor) -> float:
        count = self.count[keep].sum()
        mean = self.total[keep].sum(0) / count
        return float((self.negative[keep].sum() / count - torch.xlogy(mean, mean).sum()).exp())

    def compute(self) -> Jackknife:
        """Return the score of all images, the same without its bias in 1/N, and its standard error.

        Raises:
            DarkroomError: a block is empty.
        """
        self._require_full()
        every = torch.arange(len(self.count))
        return jackknife(self._score(every), [self._score(every[every != block]) for block in left_out(len(every))])

    def splits(self) -> tuple[float, float]:
        """Return the mean of the blocks' own scores, as published, and its standard error over the blocks.

        Published with a standard deviation, √B times this error.
        """
        self._require_full()
        blocks = torch.arange(len(self.count)).split(1)
        scores = torch.tensor([self._score(block) for block in blocks], dtype=torch.float64)
        return float(scores.mean()), float(scores.std(correction=0)) / len(scores) ** 0.5

    def _require_full(self) -> None:
        if (self.count == 0).any():
            raise DarkroomError(
                f"{int(self.count.sum())} images are too few for {len(self.count)} blocks: score more images."
            )


def inception_scores(logits: Tensor, blocks: int) -> dict[str, float]:
    """Return `inception_score` of logits (N, C) and its standard error over random blocks."""
    sums = InceptionScore(logits.shape[1], count_blocks(len(logits), blocks))
    sums.update(logits, assign_blocks(len(logits), blocks))
    return sums.compute().named("inception_score")
