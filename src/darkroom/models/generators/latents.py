"""Stored latents as networks see them: their means, and the scale of all."""

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional

from darkroom.data.latents import LatentShards
from darkroom.device import to_device
from darkroom.models.generators.dit.settings import DiTDiffusion


def means_of(stored: Mapping[str, Tensor], codebook: Tensor | None = None) -> Tensor:
    """Return the means of stored latents, or what their codes stand for, float32 (N, C, H, W).

    Args:
        stored: `mean`, float32 or bfloat16 (N, C, H, W), or `codes`, int (N, H, W).
        codebook: of codes, the vector that each stands for, float32 (K, C).
    """
    if "codes" not in stored:
        return stored["mean"].float()  # exact: bfloat16 is a part of float32
    assert codebook is not None  # it lies beside the codes
    vectors = functional.embedding(stored["codes"], to_device(codebook, stored["codes"].device))
    return vectors.permute(0, 3, 1, 2).contiguous()


def scale_of(diffusion: DiTDiffusion, latents: LatentShards) -> tuple[list[float], list[float]]:
    """Return mean and deviation by which a generator normalises latents, (C,) each."""
    mean, std = diffusion.scale(*latents.statistics)
    if diffusion.normalise == "principal":
        widest = latents.principal_deviation()
        std = [each * widest for each in std]
    return mean, std
