"""The base of all quantisers, which map each spatial position of a latent to one of K codes; those without a codebook.

Everything is computed in float32, regardless of the precision of the networks. Forward passes do not change
quantisers: a codebook of averages changes in `update`, once an optimizer step, with all vectors of the batch.
"""

import math
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional
from vector_quantize_pytorch import FSQ, LFQ

from darkroom.device import in_float32, of_all_processes, process_count
from darkroom.models.tokenizers import sections

_RECENT = 0.1  # weight of an optimizer step in the counts of codes
_USED = 0.01  # a code with a lower count has not been used for about 20 optimizer steps


class Quantised(NamedTuple):
    """Latents and their quantisation, float32.

    latents: before quantisation, (N, C, h, w).
    vectors: the vectors of the codes, (N, C, h, w), with a gradient for the latents.
    codes: int64 (N, h, w).
    losses: by name, without their weights; one value per image, (N,), or one for all, ().
    """

    latents: Tensor
    vectors: Tensor
    codes: Tensor
    losses: dict[str, Tensor]


class Quantiser(nn.Module):
    """Maps latents to the nearest of K vectors.

    size, channels: K and C.
    weights: those of the losses, by name.
    counts: uses of each code in a batch, an average over about the last 1 / 0.1 = 10 batches, (K,).
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
        """Update with the quantised images of all processes, after the optimizer step."""
        flat = codes.flatten().long()  # `bincount` would make the host wait for a GPU
        counts = torch.zeros_like(self.counts).scatter_add_(0, flat, torch.ones_like(flat, dtype=self.counts.dtype))
        self.counts.lerp_(counts, _RECENT)

    def use(self) -> dict[str, Tensor]:
        """Return the fraction of recently used codes, and the perplexity exp(H(p)) of their frequencies p, in codes."""
        p = self.counts / self.counts.sum().clamp(min=1e-12)
        used = (self.counts >= _USED).float().mean()
        return {"usage": used, "perplexity": torch.special.entr(p).sum().exp()}


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean squared difference of each image, (N,), of tensors (N, C, h, w)."""
    return (a - b).square().flatten(1).mean(dim=1)


def soft_codes(latents: Tensor, codebook: Tensor, inverse_temperature: float) -> Tensor:
    """Return p(code | z) of each place, (N, h w, K), of latents (N, C, h, w) and a codebook (K, C), all float32.

    p(k | z) = softmax_k(-t |z - c_k|^2) = softmax_k(2 t z.c_k), since all c_k are equally long (Yu et al., 2024, arXiv
    2310.05737, section 3.1); t is the inverse temperature.
    """
    flat = rearrange(latents, "n c h w -> (n h w) c")  # one product, not one per image
    p = (flat @ (2 * inverse_temperature * codebook).T).softmax(dim=-1)
    return rearrange(p, "(n places) k -> n places k", n=len(latents))


def code_entropies(p: Tensor, mean: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return H(p(code | z)), the mean over each image's places, (N,), and H(mean of p over all places), (), in nats.

    Args:
        p: from `soft_codes`, (N, h w, K).
        mean: the mean over the images of all processes, (K,), if there are several: the mean of the gradients over the
            processes is then that of its entropy.
    """
    own = p.mean(dim=(0, 1))
    if mean is not None:
        own = own + (mean - own).detach()
    return _entropy(p).mean(dim=1), _entropy(own)


def _entropy(p: Tensor) -> Tensor:
    """Return -sum p log max(p, floor) over the last dimension: the floor keeps the gradient finite where p is 0.

    It is that of MUSE's quantiser, 1e-5, and lower with so many codes that their mean frequency is near it.
    """
    floor = min(1e-5, 0.65536 / p.shape[-1])
    return -(p * p.clamp(min=floor).log()).sum(dim=-1)


class Signs(Quantiser):
    """Codes of log2(K) signs: a latent's vector is sign(z), and no codebook is stored.

    Lookup-free quantisation (Yu et al., 2024, arXiv 2310.05737), or, spherical, on the unit sphere: sign(z) / sqrt(C)
    (binary spherical quantisation, Zhao et al., 2024, arXiv 2406.07548). Loss w (H(p(code | z)) - diversity H(p(code)))
    of `code_entropies`.
    """

    def __init__(self, size: int, settings: sections.Binary, spherical: bool) -> None:
        weights = {
            "commitment": settings.commitment_weight,
            "sample_entropy": settings.entropy_weight,
            "codebook_entropy": -settings.entropy_weight * settings.diversity,
        }
        super().__init__(size, size.bit_length() - 1, weights)
        self.inverse_temperature = settings.inverse_temperature
        self.signs = LFQ(codebook_size=size, spherical=spherical, codebook_scale=1.0)

    @property
    def codebook(self) -> Tensor:
        """The vector of each code, (K, C) float32."""
        return self.signs.maybe_l2norm(self.signs.codebook)

    def prepare(self, z: Tensor) -> Tensor:
        """Return the latents, spherical as unit vectors."""
        return functional.normalize(z, dim=1) if self.signs.spherical else z

    def codes_of(self, latents: Tensor) -> Tensor:
        """Return the code of each spatial position: its signs as the digits of a binary number, highest first."""
        return ((latents > 0) * self.signs.mask.view(-1, 1, 1)).sum(dim=1)

    def losses(self, latents: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """Return the commitment and the entropy of each image's codes, (N,), and that of the mean of all, ().

        In training the mean is over the images of all processes.
        """
        p = soft_codes(latents, self.codebook, self.inverse_temperature)
        mean = None
        if self.training and process_count() > 1:
            mean = of_all_processes(p.detach().mean(dim=(0, 1))[None]).mean(dim=0)
        sample, codebook = code_entropies(p, mean)
        return {**super().losses(latents, vectors), "sample_entropy": sample, "codebook_entropy": codebook}


class Rounded(Quantiser):
    """Finite scalar quantisation (Mentzer et al., 2024, arXiv 2309.15505): channel i is rounded to one of L_i numbers.

    Latents, before rounding, are f(z) = (tanh(z + s) (L - 1) (1 + 0.001) / 2 - o) / floor(L / 2), with o = 1/2 for even
    L and 0 for odd, and s such that f(0) = 0. No loss.
    """

    def __init__(self, settings: sections.FSQ) -> None:
        super().__init__(math.prod(settings.levels), len(settings.levels), {})
        with torch.device("cpu"):  # the library looks into its tensors while it builds them
            self.scalars = FSQ(settings.levels)

    @property
    def codebook(self) -> Tensor:
        """The vector of each code, (K, C) float32."""
        return self.scalars.implicit_codebook

    def prepare(self, z: Tensor) -> Tensor:
        """Return the latents: each channel between the lowest and the highest of its numbers, and a little beyond."""
        levels = self.scalars._levels.view(-1, 1, 1)
        half = (levels - 1) * (1 + 1e-3) / 2
        offset = torch.where(levels % 2 == 0, 0.5, 0.0)
        return ((z + torch.atanh(offset / half)).tanh() * half - offset) / (levels // 2)

    def codes_of(self, latents: Tensor) -> Tensor:
        """Return the code of each spatial position."""
        levels = self.scalars._levels.view(-1, 1, 1)
        digits = (latents * (levels // 2)).round() + levels // 2  # 0 to L - 1
        digits = torch.minimum(digits.clamp(min=0), levels - 1)
        return (digits.long() * self.scalars._basis.view(-1, 1, 1)).sum(dim=1)

    def losses(self, latents: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """Return no losses."""
        return {}
