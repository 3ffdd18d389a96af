"""Quantisers: each place of a latent becomes one of K codes. One interface over those of vector-quantize-pytorch.

All of it is computed in float32, whatever the precision of the networks. No quantiser changes in a forward pass: what
no gradient moves, a codebook of averages, moves in `update`, once an update of the training with all of its vectors.
"""

import math
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional
from vector_quantize_pytorch import FSQ, LFQ, SimVQ, VectorQuantize
from vector_quantize_pytorch.vector_quantize_pytorch import kmeans, rotate_to

from darkroom.schemas.tokenizers import quantisers as sections
from darkroom.tokenizers.entropy import code_entropies, soft_codes

_KMEANS_ITERATIONS = 10
_RECENT = 0.1  # weight of an update in the counts of codes
_USED = 0.01  # a code that is counted less has not been met for about 20 updates


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
    counts: how often each code was taken in an update, an average over about the last 1 / 0.1 = 10 updates, (K,).
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
        """Return the code of each place, int64 (N, h, w), of latents (N, C, h, w)."""
        with torch.no_grad(), _float32(latents):
            flat = rearrange(latents.float(), "n c h w -> (n h w) c")
            codebook = self.codebook  # argmin |x - c|^2 = argmin |c|^2 - 2 x.c
            codes = (codebook.square().sum(dim=1) - 2 * flat @ codebook.T).argmin(dim=1)
            return codes.view(len(latents), *latents.shape[2:])

    def vectors_of(self, codes: Tensor) -> Tensor:
        """Return the vectors, (N, C, h, w) float32, of codes (N, h, w)."""
        return rearrange(functional.embedding(codes, self.codebook), "n h w c -> n c h w")

    def forward(self, z: Tensor, mean: Tensor | None = None) -> Quantised:
        """Return the encoder's output (N, C, h, w) quantised, with the losses.

        Args:
            z: the output.
            mean: what `share` says of the whole update, where these are only some of its images.
        """
        with _float32(z):
            latents = self.prepare(z.float())
            codes = self.codes_of(latents)
            vectors = self.vectors_of(codes)
            losses = self.losses(latents, vectors, mean)
            return Quantised(latents, self.pass_through(latents, vectors), codes, losses)

    @property
    def shares(self) -> bool:
        """Whether a loss asks for the mean of `share` over all images of an update."""
        return False

    def share(self, z: Tensor) -> Tensor:
        """Return what a loss asks of all images of an update, as a mean over those of an encoder's output."""
        raise NotImplementedError

    def pass_through(self, latents: Tensor, vectors: Tensor) -> Tensor:
        """Return the vectors with a gradient for the latents: d vectors / d latents = 1 (Bengio et al., 2013)."""
        return latents + (vectors - latents).detach()

    def losses(self, latents: Tensor, vectors: Tensor, mean: Tensor | None) -> dict[str, Tensor]:
        """Return the losses by name."""
        return {"commitment": squared(latents, vectors.detach())}

    @torch.no_grad()
    def update(self, latents: Tensor, codes: Tensor) -> None:
        """Take in what all images of an update became, once the step was taken."""
        self.counts.lerp_(torch.bincount(codes.flatten(), minlength=self.size).to(self.counts), _RECENT)

    def use(self) -> dict[str, Tensor]:
        """Return the share of codes met lately, and the perplexity exp(H(p)) of their shares p, in codes."""
        p = self.counts / self.counts.sum().clamp(min=1e-12)
        used = (self.counts >= _USED).float().mean()
        return {"usage": used, "perplexity": torch.special.entr(p).sum().exp()}


class AveragedCodebook(Quantiser):
    """Vector quantisation (van den Oord et al., 2017, arXiv 1711.00937, appendix A.1): the codebook follows the latents.

    n_k <- d n_k + (1 - d) count_k, m_k <- d m_k + (1 - d) sum of the latents with code k, e_k = m_k / n_k (with Laplace
    smoothing of n). By cosine, latents and codebook lie on the unit sphere (Yu et al., 2022, arXiv 2110.04627). A code
    with n_k below `dead_below` becomes a latent of the update. With `kmeans_init` the codebook begins as the centres of
    the first update's latents; during that update nothing is quantised.
    """

    ready: Tensor

    def __init__(self, size: int, channels: int, settings: sections.VQ) -> None:
        super().__init__(size, channels, {"commitment": settings.commitment_weight})
        self.cosine, self.gradient = settings.cosine, settings.gradient
        self.average = VectorQuantize(
            dim=channels,
            codebook_size=size,
            decay=settings.decay,
            eps=1e-5,
            kmeans_init=False,  # here, see `update`: the library's begins with the first piece of a batch alone
            use_cosine_sim=settings.cosine,
            threshold_ema_dead_code=settings.dead_below,
            accept_image_fmap=True,
            commitment_weight=0.0,
            rotation_trick=False,
            sync_codebook=False,  # every process is given the latents of all
        )
        self.register_buffer("ready", torch.tensor(not settings.kmeans_init))

    @property
    def codebook(self) -> Tensor:
        """The vector of each code, (K, C) float32."""
        return self.average.codebook

    def prepare(self, z: Tensor) -> Tensor:
        """Return the latents, by cosine as unit vectors."""
        return functional.normalize(z, dim=1) if self.cosine else z

    def forward(self, z: Tensor, mean: Tensor | None = None) -> Quantised:
        """Return the encoder's output (N, C, h, w) quantised; as it is while the codebook has not begun."""
        found = super().forward(z, mean)
        vectors = torch.where(self.ready, found.vectors, found.latents)
        return found._replace(vectors=vectors, losses={k: v * self.ready for k, v in found.losses.items()})

    def pass_through(self, latents: Tensor, vectors: Tensor) -> Tensor:
        """Return the vectors with the gradient that the settings ask for."""
        return rotated(latents, vectors) if self.gradient == "rotation" else super().pass_through(latents, vectors)

    @torch.no_grad()
    def update(self, latents: Tensor, codes: Tensor) -> None:
        """Move the codebook; draws from torch's global generator for its beginning and for dead codes."""
        if self.ready:
            self.average.update_indices(latents, codes)
        else:
            self._begin(rearrange(latents, "n c h w -> 1 (n h w) c"))
        super().update(latents, codes)

    def _begin(self, vectors: Tensor) -> None:
        """Make the codebook the centres of vectors (1, M, C); a centre that is nobody's nearest counts as one vector."""
        state = self.average._codebook
        centres, counts = kmeans(vectors, self.size, _KMEANS_ITERATIONS, use_cosine_sim=self.cosine)
        counts = counts.to(centres).clamp(min=1)
        state.embed.copy_(centres)
        state.cluster_size.copy_(counts)
        state.embed_avg.copy_(centres * counts[..., None])
        self.ready.fill_(True)


class LinearCodebook(Quantiser):
    """SimVQ (Zhu et al., 2024, arXiv 2411.02038): e_k = W c_k, fixed random c_k and a trained W, so all codes move.

    Losses |sg(z) - e|^2, which trains W, and |z - sg(e)|^2, means over elements.
    """

    def __init__(self, size: int, channels: int, settings: sections.SimVQ) -> None:
        super().__init__(
            size, channels, {"codebook": settings.codebook_weight, "commitment": settings.commitment_weight}
        )
        self.gradient = settings.gradient
        self.linear = SimVQ(channels, size, rotation_trick=settings.gradient == "rotation", channel_first=True)

    @property
    def codebook(self) -> Tensor:
        """The vector of each code, (K, C) float32."""
        return self.linear.codebook

    def pass_through(self, latents: Tensor, vectors: Tensor) -> Tensor:
        """Return the vectors with the gradient that the settings ask for."""
        vectors = vectors.detach()
        return rotated(latents, vectors) if self.gradient == "rotation" else super().pass_through(latents, vectors)

    def losses(self, latents: Tensor, vectors: Tensor, mean: Tensor | None) -> dict[str, Tensor]:
        """Return the losses of the codebook and of the latents, (N,) each."""
        return {"codebook": squared(latents.detach(), vectors), "commitment": squared(latents, vectors.detach())}


class Signs(Quantiser):
    """Codes of log2(K) signs: a latent's vector is sign(z), and no codebook is stored.

    Lookup-free quantisation (Yu et al., 2024, arXiv 2310.05737), or, spherical, on the unit sphere: sign(z) / sqrt(C)
    (binary spherical quantisation, Zhao et al., 2024, arXiv 2406.07548). Loss w (H(p(code | z)) - diversity * H(p(code))):
    see `code_entropies`.
    """

    def __init__(self, size: int, settings: sections.Binary, spherical: bool) -> None:
        weights = {
            "commitment": settings.commitment_weight,
            "sample_entropy": settings.entropy_weight,
            "codebook_entropy": -settings.entropy_weight * settings.diversity,
        }
        super().__init__(size, bits(size), weights)
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
        """Return the code of each place: the signs as the digits of a binary number, the first the highest."""
        return ((latents > 0) * self.signs.mask.view(-1, 1, 1)).sum(dim=1)

    def losses(self, latents: Tensor, vectors: Tensor, mean: Tensor | None) -> dict[str, Tensor]:
        """Return the commitment and the entropy of each image's codes, (N,), and that of the mean of all, ()."""
        sample, codebook = code_entropies(soft_codes(latents, self.codebook, self.inverse_temperature), mean)
        return {**super().losses(latents, vectors, mean), "sample_entropy": sample, "codebook_entropy": codebook}

    @property
    def shares(self) -> bool:
        """Whether the entropy of all codes is part of the loss."""
        return self.weights["codebook_entropy"] != 0

    @torch.no_grad()
    def share(self, z: Tensor) -> Tensor:
        """Return p(code), the mean over all places, (K,)."""
        with _float32(z):
            return soft_codes(self.prepare(z.float()), self.codebook, self.inverse_temperature).mean(dim=(0, 1))


class Rounded(Quantiser):
    """Finite scalar quantisation (Mentzer et al., 2024, arXiv 2309.15505): channel i is rounded to one of L_i numbers.

    Latents are what is rounded, f(z) = tanh(z + s) (L - 1) (1 + 0.001) / 2 - o over floor(L / 2), with o = 1/2 for even L
    and f(0) = 0 before rounding. No loss.
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
        """Return the code of each place."""
        levels = self.scalars._levels.view(-1, 1, 1)
        digits = (latents * (levels // 2)).round() + levels // 2  # 0 to L - 1
        digits = torch.minimum(digits.clamp(min=0), levels - 1)
        return (digits.long() * self.scalars._basis.view(-1, 1, 1)).sum(dim=1)

    def losses(self, latents: Tensor, vectors: Tensor, mean: Tensor | None) -> dict[str, Tensor]:
        """Return none."""
        return {}


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean squared difference of each image, (N,), of tensors (N, C, h, w)."""
    return (a - b).square().flatten(1).mean(dim=1)


def rotated(latents: Tensor, vectors: Tensor) -> Tensor:
    """Return the vectors (N, C, h, w) with a gradient that is turned and stretched as each latent is into its vector.

    With unit vectors e of the latent z and q of its vector v: z -> (|v| / |z|) (z - 2 w w.z + 2 q e.z), w = (e + q) /
    |e + q|; the map is held fixed. Fifty et al., 2024, arXiv 2410.06424, section 4.2.
    """
    found = rotate_to(rearrange(latents, "n c h w -> n h w c"), rearrange(vectors, "n c h w -> n h w c"))
    return rearrange(found, "n h w c -> n c h w")


def bits(size: int) -> int:
    """Return log2 of a power of two."""
    return size.bit_length() - 1


def _float32(values: Tensor) -> torch.autocast:
    kind = values.device.type
    return torch.autocast("cpu" if kind == "meta" else kind, enabled=False)
