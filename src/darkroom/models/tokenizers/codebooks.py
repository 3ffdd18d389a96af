"""Codebooks that are stored: moving averages of the latents, and a trained map."""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional
from vector_quantize_pytorch import SimVQ, VectorQuantize
from vector_quantize_pytorch.vector_quantize_pytorch import kmeans, rotate_to

from darkroom.device import in_float32
from darkroom.models.tokenizers import quantiser_settings as sections
from darkroom.models.tokenizers.quantiser import Quantised, Quantiser, squared

_KMEANS_ITERATIONS = 10


class MovingCodebook(VectorQuantize):
    """A codebook of moving averages of latents (van den Oord et al., 2017, arXiv 1711.00937, appendix A.1).

    n_k <- d n_k + (1 - d) count_k, m_k <- d m_k + (1 - d) sum of the latents with code k, e_k = m_k / ñ_k, ñ_k the n_k
    with Laplace smoothing. By cosine, latents and codebook lie on the unit sphere (Yu et al., 2022, arXiv 2110.04627).
    A code with n_k below `dead_below` becomes a latent of the batch. No forward pass moves it: `update_indices` does,
    given the latents and codes of all processes.

    Args:
        size, channels: K and C.
        decay: d.
        dead_below: see above; 0: no code is replaced.
        cosine: whether latents are unit vectors.
        options: of `VectorQuantize`.
    """

    def __init__(
        self, size: int, channels: int, decay: float, dead_below: float, cosine: bool = False, **options: Any
    ) -> None:
        super().__init__(
            dim=channels,
            codebook_size=size,
            decay=decay,
            eps=1e-5,
            kmeans_init=False,  # here, see `begin`: the library's begins with the first forward pass
            use_cosine_sim=cosine,
            threshold_ema_dead_code=dead_below,
            sync_codebook=False,
            **options,
        )

    @torch.no_grad()
    def begin(self, vectors: Tensor) -> None:
        """Make the codebook the centres of vectors (M, C) by k-means, which draws from torch's global generator.

        A centre without a vector counts as one.
        """
        state = self._codebook
        centres, counts = kmeans(
            vectors[None], self.codebook_size, _KMEANS_ITERATIONS, use_cosine_sim=self.use_cosine_sim
        )
        counts = counts.to(centres).clamp(min=1)
        state.embed.copy_(centres)
        state.cluster_size.copy_(counts)
        state.embed_avg.copy_(centres * counts[..., None])

    @torch.no_grad()
    def moved(self, latents: Tensor, codes: Tensor) -> Tensor:
        """Return the codebook (K, C) as latents (N, T, C) and their codes (N, T) will move it, dead codes aside.

        In float32 whatever the training's precision, as the codebook moves.
        """
        state, size = self._codebook, self.codebook_size
        chosen = functional.one_hot(codes.flatten(), size).to(latents.dtype)  # (NT, K)
        with in_float32(latents.device):
            totals = chosen.T @ latents.flatten(0, 1)  # (K, C)
        counts = state.cluster_size[0].lerp(chosen.sum(dim=0), 1 - state.decay)
        sums = state.embed_avg[0].lerp(totals, 1 - state.decay)
        smoothed = (counts + state.eps) / (counts.sum() + size * state.eps) * counts.sum()
        return sums / smoothed[:, None]


class AveragedCodebook(Quantiser):
    """Vector quantisation by a `MovingCodebook`.

    With `kmeans_init` the codebook begins as the centres of the first batch's latents; in that step nothing is
    quantised.
    """

    ready: Tensor

    def __init__(self, size: int, channels: int, settings: sections.VQ) -> None:
        super().__init__(size, channels, {"commitment": settings.commitment_weight})
        self.cosine, self.gradient = settings.cosine, settings.gradient
        self.average = MovingCodebook(
            size,
            channels,
            settings.decay,
            settings.dead_below,
            settings.cosine,
            accept_image_fmap=True,
            commitment_weight=0.0,
            rotation_trick=False,
        )
        self.register_buffer("ready", torch.tensor(not settings.kmeans_init))

    @property
    def codebook(self) -> Tensor:
        """The vector of each code, (K, C) float32."""
        return self.average.codebook

    def prepare(self, z: Tensor) -> Tensor:
        """Return the latents, by cosine as unit vectors."""
        return functional.normalize(z, dim=1) if self.cosine else z

    def forward(self, z: Tensor) -> Quantised:
        """Return the encoder's output (N, C, h, w) quantised; as it is while the codebook has not begun."""
        found = super().forward(z)
        vectors = torch.where(self.ready, found.vectors, found.latents)
        return found._replace(vectors=vectors, losses={k: v * self.ready for k, v in found.losses.items()})

    def pass_through(self, latents: Tensor, vectors: Tensor) -> Tensor:
        """Return the vectors with the gradient that the settings name."""
        return rotated(latents, vectors) if self.gradient == "rotation" else super().pass_through(latents, vectors)

    @torch.no_grad()
    def update(self, latents: Tensor, codes: Tensor) -> None:
        """Move the codebook; draws from torch's global generator for its beginning and for dead codes."""
        if self.ready:
            self.average.update_indices(latents, codes)
        else:
            self.average.begin(rearrange(latents, "n c h w -> (n h w) c"))
            self.ready.fill_(True)
        super().update(latents, codes)


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
        """Return the vectors with the gradient that the settings name."""
        vectors = vectors.detach()
        return rotated(latents, vectors) if self.gradient == "rotation" else super().pass_through(latents, vectors)

    def losses(self, latents: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """Return the losses of the codebook and of the latents, (N,) each."""
        return {"codebook": squared(latents.detach(), vectors), "commitment": squared(latents, vectors.detach())}


def rotated(latents: Tensor, vectors: Tensor) -> Tensor:
    """Return the vectors (N, C, h, w) with a gradient that is turned and stretched as each latent is into its vector.

    With unit vectors e of the latent z and q of its vector v: z -> (|v| / |z|) (z - 2 w w.z + 2 q e.z), w = (e + q) /
    |e + q|; the map is held fixed. Fifty et al., 2024, arXiv 2410.06424, section 4.2.
    """
    found = rotate_to(rearrange(latents, "n c h w -> n h w c"), rearrange(vectors, "n c h w -> n h w c"))
    return rearrange(found, "n h w c -> n c h w")
