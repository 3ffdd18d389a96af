"""One stage of the cascade: a trained U-Net, its sampling settings, and its images.

An up-sampler trained only on perfect small images repeats the faults of generated ones. So in training they are
blurred (Ramesh et al., 2022, arXiv 2204.06125, section 2.1, after Saharia et al., 2021, "SR3") or noised, with the
amount of noise as a condition (Ho et al., 2021, "Cascaded diffusion models", arXiv 2106.15282).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from darkroom.diffusion.denoiser import Guidance, clip_x0, dynamic_threshold
from darkroom.diffusion.inversion import inpaint
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.scalers import EmbeddingScaler
from darkroom.diffusion.types import Objective, Threshold
from darkroom.models.decoder.network import Conditions, DecoderUNet, unet_denoiser
from darkroom.models.decoder.settings import UNetSampling
from darkroom.rng import derive, normal


def downsampled(images: Tensor, size: int, method: Literal["area", "nearest"] = "area") -> Tensor:
    """Return square images (N, C, S, S) at `size`, which divides S: the mean of each block, or its first pixel."""
    if images.shape[-1] == size:
        return images
    factor = images.shape[-1] // size
    if method == "nearest":
        return images[..., ::factor, ::factor].contiguous()
    return functional.avg_pool2d(images, factor)


def upsampled(images: Tensor, size: int) -> Tensor:
    """Return square images (N, C, s, s) at `size`, a multiple of s: every pixel a block."""
    factor = size // images.shape[-1]
    return images.repeat_interleave(factor, dim=2).repeat_interleave(factor, dim=3)


def blurred(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Return images (N, C, H, W), each blurred by a Gaussian of its own width; edges are mirrored.

    Args:
        images: the images to blur.
        sigma: width of each blur in pixels, (N,), above 0.
        kernel: pixels of the kernel's side, odd.
    """
    count, channels, height, width = images.shape
    away = torch.arange(kernel, device=images.device, dtype=images.dtype) - kernel // 2
    weights = torch.exp(-(away**2) / (2 * sigma[:, None] ** 2))  # (N, K)
    weights = weights / weights.sum(dim=1, keepdim=True)
    each = weights.repeat_interleave(channels, dim=0)[:, None]  # (N C, 1, K)
    edge = kernel // 2
    x = functional.pad(images, (edge,) * 4, mode="reflect").reshape(1, count * channels, height + 2 * edge, -1)
    x = functional.conv2d(x, each[:, :, :, None], groups=count * channels)
    x = functional.conv2d(x, each[:, :, None, :], groups=count * channels)
    return x.reshape(count, channels, height, width)


def noised(images: Tensor, noise: Tensor, level: Tensor) -> Tensor:
    """Return sqrt(1 - l²) x + l ε: images or embeddings (N, ...) with a fraction l of noise in each, (N,), 0 to 1."""
    fraction = level.reshape(-1, *(1,) * (images.ndim - 1))
    return (1 - fraction**2).sqrt() * images + fraction * noise


# From a purpose, and the shape for one image, to standard normal numbers for all.
Noise = Callable[[str, tuple[int, ...]], Tensor]


@dataclass(frozen=True)
class CascadeStage:
    """A trained U-Net of the cascade.

    objective: the one that it was trained with.
    bounded: whether x0 is pixels, in [-1, 1]; latents are not.
    metadata: its manifest.
    """

    name: str
    network: DecoderUNet
    objective: Objective
    bounded: bool
    metadata: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Pixels of its images, in height and width."""
        return self.network.config.size

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of its images, (C, S, S)."""
        return self.network.config.image_channels, self.size, self.size


@dataclass(frozen=True)
class SampleRequest:
    """A request for N images.

    numbers: those of the images: noise follows from (seed, number), so an image does not depend on the others.
    image: CLIP image embeddings as stored, float32 (N, D); None: no U-Net reads any.
    text: text encodings, float32 (N, L, W); None: no U-Net reads any.
    low: where the first stage enlarges, the images to enlarge, float32 (N, C, s, s) in [-1, 1].
    known, mask: for in-painting, x0 at the size of the last stage, and 1 where it stays, else 0, (N, 1, S, S).
    resamples: tries of each step of in-painting.
    """

    numbers: Sequence[int]
    image: Tensor | None = None
    text: Tensor | None = None
    low: Tensor | None = None
    known: Tensor | None = None
    mask: Tensor | None = None
    resamples: int = 5


def sample_stage(
    stage: CascadeStage,
    settings: UNetSampling,
    request: SampleRequest,
    below: Tensor | None,
    seed: int,
    device: torch.device,
) -> Tensor:
    """Return x0 of a stage of the cascade, float32 (N, C, S, S).

    `below` are the images to enlarge, of any size, if it enlarges; all noise follows from the seed.
    """
    config, objective, guidance = stage.network.config, stage.objective, Guidance.of(settings)

    def noise(purpose: str, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(normal(seed, f"decoder/{stage.name}/{purpose}", request.numbers, shape)).to(device)

    conditions = _conditions(stage, settings, request, below, noise, device)
    threshold: Threshold | None = None
    if stage.bounded and settings.threshold == "dynamic":
        threshold = partial(dynamic_threshold, percentile=settings.percentile)
    elif stage.bounded and settings.threshold == "clip":
        threshold = clip_x0
    denoise = unet_denoiser(stage.network, objective, conditions, guidance, threshold, config.self_condition)
    x = noise("start", stage.shape)
    seeds = [derive(seed, f"decoder/{stage.name}/steps", number) for number in request.numbers]
    generators = [torch.Generator().manual_seed(each) for each in seeds]
    if request.known is not None and request.mask is not None:
        known, mask = (downsampled(each.to(device), config.size) for each in (request.known, request.mask))
        mask = (mask == 1).float()  # partly known pixels count as unknown
        return inpaint(denoise, x, objective, settings, known, mask, resamples=request.resamples, generators=generators)
    return sample(denoise, x, objective, settings, generators)


def _conditions(
    stage: CascadeStage,
    settings: UNetSampling,
    request: SampleRequest,
    below: Tensor | None,
    noise: Noise,
    device: torch.device,
) -> Conditions:
    """Return the conditions that the U-Net's configuration names, with the requested noise."""
    config, given = stage.network.config, dict[str, Tensor]()
    if config.embed_dim:
        assert request.image is not None
        given["image"] = EmbeddingScaler.from_facts(stage.metadata)(request.image.to(device))
        if config.embedding_noise:
            given["image_noise"] = torch.full((len(request.numbers),), settings.embedding_noise, device=device)
            given["image"] = noised(given["image"], noise("embedding", (config.embed_dim,)), given["image_noise"])
    if config.text_shape is not None:
        assert request.text is not None
        given["text"] = request.text.to(device)
    if config.low:
        assert below is not None
        given["low"] = upsampled(below.to(device), config.size)
        if config.low_noise:
            given["low_noise"] = torch.full((len(request.numbers),), settings.low_noise, device=device)
            given["low"] = noised(given["low"], noise("low", stage.shape), given["low_noise"])
    return Conditions(**given)
