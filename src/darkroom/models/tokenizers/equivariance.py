"""Equivariance of latents: of a transformed latent the decoder makes the transformed image.

EQ-VAE (Kouzelis et al., 2025, arXiv 2502.09509): with probability p the losses of an optimizer step compare
decode(t(encode(x))) with t(x), t a scale and a quarter turn; else decode(encode(x)) with x.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from darkroom.device import in_float32, to_device
from darkroom.models.tokenizers.loss_settings import Equivariance
from darkroom.params.training import Training
from darkroom.rng import random_numbers
from darkroom.training.recipe import Batch


@dataclass(frozen=True)
class Transform:
    """What happens to the latents of an optimizer step, and to its images.

    side: of the scaled latent, in places.
    turns: quarter turns, counterclockwise.
    """

    side: int
    turns: int

    def __call__(self, x: Tensor, factor: int = 1) -> Tensor:
        """Return x (N, C, H, H) scaled and turned, float32; of images, `factor` is pixels a side behind a place."""
        return scaled(x, self.side * factor).rot90(self.turns, (2, 3))


def transform_of(settings: Equivariance, training: Training, batch: Batch, side: int) -> Transform | None:
    """Return the transform of the optimizer step that a batch is of, None for none; latents have `side` places a side.

    It follows from (seed, step), so it is the same in all processes and micro-batches. The first step has none: there a
    codebook begins, by k-means, with latents as they are.
    """
    step = int(batch.positions[0]) // training.batch
    if not settings.active or not step:
        return None
    _, ((chance, scale, turn),) = random_numbers(training.seed, "tokenizer/equivariance", [step], 0, 3)
    if chance >= settings.probability:
        return None
    sides = settings.sides(side) or range(side, side + 1)
    return Transform(sides[int(scale * len(sides))], 1 + int(3 * turn) if settings.turns else 0)


def scaled(x: Tensor, side: int) -> Tensor:
    """Return (N, C, side, side), float32, of x (N, C, H, H): W x Wᵀ, the mean of x over the area of each new place.

    W_ij = |[i r, (i + 1) r] ∩ [j, j + 1]| / r, r = H / side. By products of matrices, since CUDA has no gradient of an
    interpolation that is the same each time.
    """
    size = x.shape[-1]
    edges = torch.arange(side + 1, dtype=torch.float64) * size / side
    places = torch.arange(size)
    covered = torch.minimum(edges[1:, None], places + 1) - torch.maximum(edges[:-1, None], places)  # (side, H)
    weights = to_device((covered.clamp(min=0) * side / size).to(torch.float32), x.device)
    with in_float32(x.device):
        return torch.einsum("ih,nchw,jw->ncij", weights, x.float(), weights)
