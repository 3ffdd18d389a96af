"""What all quantisers share: each spatial position of a latent becomes one of K codes.

All of it is computed in float32, whatever the precision of the networks. No quantiser changes in a forward pass: what
no gradient moves, a codebook of averages, moves in `update`, once an optimizer step, with all vectors of the batch.
"""

from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional

from darkroom.device import in_float32

_RECENT = 0.1  # weight of an optimizer step in the counts of codes
_USED = 0.01  # a code that is counted less has not been met for about 20 optimizer steps


class Quantised(NamedTuple):
    """Latents and what they became, float32.

    latents: before, (N, C, h, w).
    vectors: those of the codes, (N, C, h, w), with a gradient for the latents.
    codes: int64 (N, h, w).
    losses: by name, without their weights; one value an image, (N,), or one for all of them, ().
    """

    latents: Tensor
    vectors: Tensor
    codes: Tensor
    losses: dict[str, Tensor]


class Quantiser(nn.Module):
    """Maps latents to the nearest of K vectors.

    size, channels: K and C.
    weights: of the losses, by name.
    counts: how often each code was taken in a batch, an average over about the last 1 / 0.1 = 10 batches, (K,).
    """

    counts: Tensor

    def __init__(self, size: int, channels: int, weights: dict[str, float]) -> None:
        super().__init__()
        self.size, self.channels, self.weights = size, channels, weights
        self.register_buffer("counts", torch.zeros(size))

    @property
    def codebook(self) -> Tensor:
        """The vector of each code, (K, C) float32."""
        raise NotImplementedError

    def prepare(self, z: Tensor) -> Tensor:
        """Return the latents of the encoder's output, both (N, C, h, w): where distances are measured."""
        return z

    def codes_of(self, latents: Tensor) -> Tensor:
        """Return the code of each spatial position, int64 (N, h, w), of latents (N, C, h, w)."""
        with torch.no_grad(), in_float32(latents.device):
            flat = rearrange(latents.float(), "n c h w -> (n h w) c")
            codebook = self.codebook  # argmin |x - c|^2 = argmin |c|^2 - 2 x.c
            codes = (codebook.square().sum(dim=1) - 2 * flat @ codebook.T).argmin(dim=1)
            return codes.view(len(latents), *latents.shape[2:])

    def vectors_of(self, codes: Tensor) -> Tensor:
        """Return the vectors, (N, C, h, w) float32, of codes (N, h, w)."""
        return rearrange(functional.embedding(codes, self.codebook), "n h w c -> n c h w")

    def forward(self, z: Tensor) -> Quantised:
        """Return the encoder's output z, (N, C, h, w), quantised, with the losses."""
        with in_float32(z.device):
            latents = self.prepare(z.float())
            codes = self.codes_of(latents)
            vectors = self.vectors_of(codes)
            losses = self.losses(latents, vectors)
            return Quantised(latents, self.pass_through(latents, vectors), codes, losses)

    def pass_through(self, latents: Tensor, vectors: Tensor) -> Tensor:
        """Return the vectors with a gradient for the latents: d vectors / d latents = 1 (Bengio et al., 2013)."""
        return latents + (vectors - latents).detach()

    def losses(self, latents: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """Return the losses by name."""
        return {"commitment": squared(latents, vectors.detach())}

    @torch.no_grad()
    def update(self, latents: Tensor, codes: Tensor) -> None:
        """Take in what all images of a batch became, once the optimizer step was taken."""
        found = codes.flatten().long()  # `bincount` would make the host wait for a GPU
        counts = torch.zeros_like(self.counts).scatter_add_(0, found, torch.ones_like(found, dtype=self.counts.dtype))
        self.counts.lerp_(counts, _RECENT)

    def use(self) -> dict[str, Tensor]:
        """Return the fraction of codes met lately, and the perplexity exp(H(p)) of their frequencies p, in codes."""
        p = self.counts / self.counts.sum().clamp(min=1e-12)
        used = (self.counts >= _USED).float().mean()
        return {"usage": used, "perplexity": torch.special.entr(p).sum().exp()}


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean squared difference of each image, (N,), of tensors (N, C, h, w)."""
    return (a - b).square().flatten(1).mean(dim=1)
