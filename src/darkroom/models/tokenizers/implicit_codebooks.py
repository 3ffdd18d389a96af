"""Quantisers without a stored codebook: signs, and rounded numbers."""

import math

import torch
from torch import Tensor
from torch.nn import functional
from vector_quantize_pytorch import FSQ, LFQ

from darkroom.device import of_all_processes, process_count
from darkroom.models.tokenizers import quantiser_settings as sections
from darkroom.models.tokenizers.entropy import code_entropies, soft_codes
from darkroom.models.tokenizers.quantiser import Quantiser


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

    Latents are what is rounded, f(z) = (tanh(z + s) (L - 1) (1 + 0.001) / 2 - o) / floor(L / 2), with o = 1/2 for even
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
        """Return none."""
        return {}
