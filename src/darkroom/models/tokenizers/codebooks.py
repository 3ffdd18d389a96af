"""Quantisers whose codebook is stored: one that follows the latents, and one that is a trained map."""

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional
from vector_quantize_pytorch import SimVQ, VectorQuantize
from vector_quantize_pytorch.vector_quantize_pytorch import kmeans, rotate_to

from darkroom.models.tokenizers import quantiser_settings as sections
from darkroom.models.tokenizers.quantiser import Quantised, Quantiser, squared

_KMEANS_ITERATIONS = 10


class AveragedCodebook(Quantiser):
    """Vector quantisation by averages of latents (van den Oord et al., 2017, arXiv 1711.00937, appendix A.1).

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
        """Make the codebook the centres of vectors (1, M, C); a centre without a vector counts as one."""
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


def rotated(latents: Tensor, vectors: Tensor) -> Tensor:
    """Return the vectors (N, C, h, w) with a gradient that is turned and stretched as each latent is into its vector.

    With unit vectors e of the latent z and q of its vector v: z -> (|v| / |z|) (z - 2 w w.z + 2 q e.z), w = (e + q) /
    |e + q|; the map is held fixed. Fifty et al., 2024, arXiv 2410.06424, section 4.2.
    """
    found = rotate_to(rearrange(latents, "n c h w -> n h w c"), rearrange(vectors, "n c h w -> n h w c"))
    return rearrange(found, "n h w c -> n c h w")
