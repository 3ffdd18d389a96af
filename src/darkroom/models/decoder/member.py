"""One U-Net of the cascade: how it is sampled, and what it makes of what is asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from darkroom.diffusion.denoising import Solver, inpaint, sample
from darkroom.diffusion.prediction import Prediction
from darkroom.diffusion.thresholds import clipped, dynamically_clipped
from darkroom.models.decoder.denoiser import denoiser
from darkroom.models.decoder.low_resolution import downsampled, noised, upsampled
from darkroom.models.decoder.unet import Conditions, DecoderUNet
from darkroom.models.prior.standard import Standard
from darkroom.random import derive, normal

# From what it is for, and the shape for one image, to standard normal numbers for all.
Noise = Callable[[str, tuple[int, ...]], Tensor]


class Sampling(Protocol):
    """How one U-Net is sampled; see `models.decoder.sample_settings`."""

    solver: Solver
    steps: int
    eta: float
    guidance: float
    threshold: Literal["clip", "dynamic", "none"]
    percentile: float
    embedding_noise: float
    low_noise: float


@dataclass(frozen=True)
class Member:
    """A trained U-Net of the cascade, and what its manifest says."""

    name: str
    network: DecoderUNet
    prediction: Prediction
    facts: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Pixels of its images, in height and width."""
        return self.network.config.size


@dataclass(frozen=True)
class Asked:
    """What images are wanted: N of them.

    numbers: which images they are: noise follows from (seed, number), so an image does not depend on its company.
    image: CLIP image embeddings as stored, float32 (N, D); None: no U-Net is told any.
    text: text encodings, float32 (N, L, W), likewise.
    low: where the first trained U-Net enlarges, the images to enlarge, float32 (N, C, s, s) in [-1, 1].
    known, mask: for in-painting, x_0 at the size of the last U-Net, and where it is kept, 1 or 0, (N, 1, S, S).
    resamples: of in-painting.
    """

    numbers: Sequence[int]
    image: Tensor | None = None
    text: Tensor | None = None
    low: Tensor | None = None
    known: Tensor | None = None
    mask: Tensor | None = None
    resamples: int = 5


def generate(
    member: Member, how: Sampling, asked: Asked, below: Tensor | None, seed: int, device: torch.device
) -> Tensor:
    """Return x_0 of a U-Net, float32 (N, C, s, s).

    Args:
        member: the U-Net.
        how: it is sampled.
        asked: what is wanted.
        below: the images to enlarge, of any size, where it enlarges.
        seed: of all noise.
        device: where the network is.
    """
    config, prediction = member.network.config, member.prediction
    noise = partial(_noise, member, asked.numbers, seed, device)
    told = _told(member, how, asked, below, noise, device)
    keep = _keep(how) if prediction.bounded else None
    denoise = denoiser(member.network, prediction, told, how.guidance, keep, config.self_condition)
    start = noise("start", _shape(member))
    steps = [derive(seed, f"decoder/{member.name}/steps", number) for number in asked.numbers]
    generators = [torch.Generator().manual_seed(each) for each in steps]
    learned = prediction.learned_variance
    if asked.known is not None and asked.mask is not None:
        known, mask = (downsampled(each.to(device), config.size) for each in (asked.known, asked.mask))
        return inpaint(
            denoise,
            start,
            prediction.schedule,
            how.steps,
            known,
            (mask == 1).float(),  # a pixel that is known in part is not known
            resamples=asked.resamples,
            learned_variance=learned,
            generators=generators,
        )
    return sample(
        denoise,
        start,
        prediction.schedule,
        how.solver,
        how.steps,
        eta=how.eta,
        learned_variance=learned,
        generators=generators,
    )


def _shape(member: Member) -> tuple[int, int, int]:
    return member.network.config.image_channels, member.size, member.size


def _noise(
    member: Member, numbers: Sequence[int], seed: int, device: torch.device, what: str, shape: tuple[int, ...]
) -> Tensor:
    """Return the standard normal numbers of one purpose, float32 (N, *shape)."""
    return torch.from_numpy(normal(seed, f"decoder/{member.name}/{what}", numbers, shape)).to(device)


def _told(
    member: Member, how: Sampling, asked: Asked, below: Tensor | None, noise: Noise, device: torch.device
) -> Conditions:
    """Return what the U-Net is told: what its configuration names, with as much noise as asked for."""
    config, told = member.network.config, Conditions()
    if config.embed_dim:
        assert asked.image is not None
        image = Standard.from_facts(member.facts)(asked.image.to(device))
        if config.embedding_noise:
            level = torch.full((len(asked.numbers),), how.embedding_noise, device=device)
            told = replace(told, image_noise=level)
            image = noised(image, noise("embedding", (config.embed_dim,)), level)
        told = replace(told, image=image)
    if config.text_shape is not None:
        assert asked.text is not None
        told = replace(told, text=asked.text.to(device))
    if config.low:
        assert below is not None
        large = upsampled(below.to(device), config.size)
        if config.low_noise:
            level = torch.full((len(asked.numbers),), how.low_noise, device=device)
            told = replace(told, low_noise=level)
            large = noised(large, noise("low", _shape(member)), level)
        told = replace(told, low=large)
    return told


def _keep(how: Sampling) -> Callable[[Tensor], Tensor] | None:
    """Return what keeps a predicted x_0 in its range."""
    if how.threshold == "dynamic":
        return partial(dynamically_clipped, percentile=how.percentile)
    return clipped if how.threshold == "clip" else None
