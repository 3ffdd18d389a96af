"""Stored codebooks: moving averages of the latents, and a trained map."""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional
from vector_quantize_pytorch import SimVQ, VectorQuantize
from vector_quantize_pytorch.vector_quantize_pytorch import (
    cdist,
    directional_reparam,
    entropy,
    kmeans,
    orthogonal_loss_fn,
    rotate_to,
)

from darkroom.device import in_float32, of_all_processes, process_count
from darkroom.models.tokenizers import sections
from darkroom.models.tokenizers.quantiser import Quantised, Quantiser, squared

_LEAST = 1e-5  # smallest variance


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
        eps: of the Laplace smoothing.
        kmeans_iters: iterations of k-means.
        options: of `VectorQuantize`.
    """

    def __init__(
        self,
        size: int,
        channels: int,
        decay: float,
        dead_below: float,
        cosine: bool = False,
        eps: float = 1e-5,
        kmeans_iters: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(
            dim=channels,
            codebook_size=size,
            decay=decay,
            eps=eps,
            kmeans_init=False,  # see `begin`: the library's runs in the first forward pass
            use_cosine_sim=cosine,
            threshold_ema_dead_code=dead_below,
            sync_codebook=False,
            **options,
        )
        self.kmeans_iters = kmeans_iters

    @torch.no_grad()
    def begin(self, vectors: Tensor) -> None:
        """Make the codebook the centres of vectors (M, C) by k-means, which draws from torch's global generator.

        A centre without a vector counts as one.
        """
        state = self._codebook
        centres, counts = kmeans(
            vectors[None], self.codebook_size, self.kmeans_iters, use_cosine_sim=self.use_cosine_sim
        )
        counts = counts.to(centres).clamp(min=1)
        state.embed.copy_(centres)
        state.cluster_size.copy_(counts)
        state.embed_avg.copy_(centres * counts[..., None])

    @torch.no_grad()
    def moved(self, latents: Tensor, codes: Tensor) -> Tensor:
        """Return the codebook (K, C) after its update by latents (N, T, C) and their codes (N, T), without dead codes.

        Computed in float32 regardless of the training's precision, as the update is.
        """
        state, size = self._codebook, self.codebook_size
        chosen = functional.one_hot(codes.flatten(), size).to(latents.dtype)  # (NT, K)
        with in_float32(latents.device):
            totals = chosen.T @ latents.flatten(0, 1)  # (K, C)
        counts = state.cluster_size[0].lerp(chosen.sum(dim=0), 1 - state.decay)
        sums = state.embed_avg[0].lerp(totals, 1 - state.decay)
        smoothed = (counts + state.eps) / (counts.sum() + size * state.eps) * counts.sum()
        moved = sums / smoothed[:, None]
        return functional.normalize(moved, dim=-1) if self.use_cosine_sim else moved


class AveragedCodebook(Quantiser):
    """Vector quantisation by a `MovingCodebook`, or by one of its shape that the optimizer trains.

    With `kmeans_init` the codebook begins as the centres of the first batch's latents; in that step nothing is
    quantised.

    Losses, each with its weight in the settings: commitment, |z - e|^2, or the cross-entropy of the code by logits
    -|z - e_k| (by cosine z.e_k); orthogonal, sum_jk cos(e_j, e_k)^2 / K^2 - 1 / K (Shin et al., 2021, arXiv 2112.00384,
    equation 2); diversity, -H(mean over images of softmax(t logits)) of each position. Learnable codes have the
    gradients of all of them.

    With `affine_param` codes are (e_k - m) s' / s + m', of mean m and deviation s of the codebook, m' and s' of the
    latents (Huh et al., 2023, arXiv 2305.08842); the moving averages are those of the optimizer step before.
    """

    ready: Tensor
    measured: Tensor

    def __init__(self, size: int, channels: int, settings: sections.VQ) -> None:
        weights = {
            "commitment": settings.commitment_weight,
            "orthogonal": settings.orthogonal_reg_weight,
            "diversity": settings.codebook_diversity_loss_weight,
        }
        super().__init__(size, channels, weights)
        self.cosine, self.gradient, self.settings = settings.cosine, settings.gradient, settings
        self.average = MovingCodebook(
            size,
            channels,
            settings.decay,
            settings.dead_below,
            settings.cosine,
            settings.eps,
            settings.kmeans_iters,
            accept_image_fmap=True,
            commitment_weight=0.0,
            rotation_trick=False,
            learnable_codebook=settings.learnable_codebook,
            ema_update=not settings.learnable_codebook,
        )
        self.register_buffer("ready", torch.tensor(not settings.kmeans_init))
        self._begun = False
        if settings.affine_param:  # moving averages, by channel
            self.register_buffer("measured", torch.tensor(False))
            for name in ("batch", "codebook"):
                self.register_buffer(f"{name}_mean", torch.zeros(channels))
                self.register_buffer(f"{name}_variance", torch.ones(channels))

    @property
    def codebook(self) -> Tensor:
        """The vector of each code, (K, C) float32."""
        stored = self.average.codebook
        if not self.settings.affine_param:
            return stored
        mean, deviation = self._statistics("codebook")
        batch_mean, batch_deviation = self._statistics("batch")
        return (stored - mean) * (batch_deviation / deviation) + batch_mean

    def _statistics(self, name: str) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of the latents (`batch`) or of the codebook, (C,)."""
        return getattr(self, f"{name}_mean"), getattr(self, f"{name}_variance").clamp(min=_LEAST).sqrt()

    def prepare(self, z: Tensor) -> Tensor:
        """Return the latents, by cosine as unit vectors."""
        return functional.normalize(z, dim=1) if self.cosine else z

    def forward(self, z: Tensor) -> Quantised:
        """Return the encoder's output (N, C, h, w) quantised, or unchanged before the codebook is initialised."""
        quantised = super().forward(z)
        vectors = torch.where(self.ready, quantised.vectors, quantised.latents)
        return quantised._replace(vectors=vectors, losses={k: v * self.ready for k, v in quantised.losses.items()})

    def pass_through(self, latents: Tensor, vectors: Tensor) -> Tensor:
        """Return the vectors with the gradient that the settings name.

        directional, in training: z + |e - z| d, d the direction of e - z with noise on it and without a gradient
        (DiVeQ, openreview KRVnpTbx7R); the noise is torch's global generator's.
        """
        if self.gradient == "rotation":
            return rotated(latents, vectors)
        if self.gradient == "straight_through":
            return super().pass_through(latents, vectors)
        if not self.training:
            return vectors
        pair = (rearrange(each, "n c h w -> n h w c") for each in (latents, vectors))
        return rearrange(directional_reparam(*pair, self.settings.directional_reparam_variance), "n h w c -> n c h w")

    def losses(self, latents: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """Return the commitment of each image, (N,), and in training the other losses with a weight, ()."""
        losses, settings = {}, self.settings
        if settings.commitment == "cross_entropy" and settings.commitment_weight:
            logits, codes = self._logits(latents), self.codes_of(latents).flatten(1)
            losses["commitment"] = functional.cross_entropy(logits.mT, codes, reduction="none").mean(dim=1)
        else:
            losses["commitment"] = squared(latents, vectors if settings.learnable_codebook else vectors.detach())
        if self.training and settings.codebook_diversity_loss_weight:
            p = (self._logits(latents) * settings.codebook_diversity_temperature).softmax(dim=-1).mean(dim=0)
            if process_count() > 1:  # so that the mean of the gradients is that of the mean of all processes
                p = p + (of_all_processes(p.detach()[None]).mean(dim=0) - p).detach()
            losses["diversity"] = -entropy(p).mean()
        if self.training and settings.orthogonal_reg_weight:
            losses["orthogonal"] = orthogonal_loss_fn(self._regularised(latents)[None])
        return losses

    def _logits(self, latents: Tensor) -> Tensor:
        """Return minus the distances to all codes, by cosine the cosines, (N, h w, K)."""
        flat = rearrange(latents, "n c h w -> n (h w) c")
        codebook = self.codebook if self.settings.learnable_codebook else self.codebook.detach()
        if self.cosine:
            return flat @ codebook.T
        return -cdist(flat, codebook.expand(len(flat), -1, -1))

    def _regularised(self, latents: Tensor) -> Tensor:
        """Return the codes for the orthogonal loss, (M, C): those of the batches of all processes, or drawn ones."""
        codebook, most = self.average.codebook, self.settings.orthogonal_reg_max_codes
        if self.settings.orthogonal_reg_active_codes_only:
            codebook = codebook[of_all_processes(self.codes_of(latents)).unique()]
        if most is not None and len(codebook) > most:
            codebook = codebook[torch.randperm(len(codebook), device=codebook.device)[:most]]
        return codebook

    @torch.no_grad()
    def update(self, latents: Tensor, codes: Tensor) -> None:
        """Update the codebook; draws from torch's global generator to initialise it and to replace dead codes."""
        if self._begun or self.ready:  # read in the first update only: reading it waits for the device
            if self.settings.affine_param:
                latents = self._measure(latents)
            self.average.update_indices(latents, codes)
        else:
            self.average.begin(rearrange(latents, "n c h w -> (n h w) c"))
            self.ready.fill_(True)
        self._begun = True
        super().update(latents, codes)

    def _measure(self, latents: Tensor) -> Tensor:
        """Update the statistics of latents and codebook; return the latents in the space of the stored codebook."""
        decays = {
            "batch": self.settings.affine_param_batch_decay,
            "codebook": self.settings.affine_param_codebook_decay,
        }
        rows = {"batch": rearrange(latents, "n c h w -> (n h w) c"), "codebook": self.average.codebook}
        for name, decay in decays.items():
            weight = torch.where(self.measured, 1 - decay, 1.0)  # without waiting for the device
            getattr(self, f"{name}_mean").lerp_(rows[name].mean(dim=0), weight)
            getattr(self, f"{name}_variance").lerp_(rows[name].var(dim=0, unbiased=False), weight)
        self.measured.fill_(True)
        mean, deviation = self._statistics("codebook")
        batch_mean, batch_deviation = self._statistics("batch")
        shift, scale, back = (value[:, None, None] for value in (batch_mean, deviation / batch_deviation, mean))
        return (latents - shift) * scale + back


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
    """Return the vectors (N, C, h, w) with the gradient rotated and scaled as each latent is mapped to its vector.

    With unit vectors e of the latent z and q of its vector v: z -> (|v| / |z|) (z - 2 w w.z + 2 q e.z), w = (e + q) /
    |e + q|; the map is held fixed. Fifty et al., 2024, arXiv 2410.06424, section 4.2.
    """
    turned = rotate_to(rearrange(latents, "n c h w -> n h w c"), rearrange(vectors, "n c h w -> n h w c"))
    return rearrange(turned, "n h w c -> n c h w")
