"""The cascade of U-Nets: from embeddings to images, each U-Net enlarging what the last one made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, read_manifest
from darkroom.diffusion.denoising import Solver, inpaint, sample
from darkroom.diffusion.thresholds import clipped, dynamically_clipped
from darkroom.generators.denoiser import Prediction, denoiser
from darkroom.generators.low_resolution import downsampled, noised, upsampled
from darkroom.generators.standard import Standard
from darkroom.generators.unet import Conditions, DecoderUNet
from darkroom.random import derive, normal

MODELS = Path("models/decoder")


class Sampling(Protocol):
    """How one U-Net is sampled; see `schemas.sample_decoder`."""

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
    resamples: int = field(default=5)


class Cascade:
    """The trained U-Nets, from the smallest images to the largest."""

    def __init__(self, members: Sequence[Member], identity: str) -> None:
        self.members, self.identity = list(members), identity

    @classmethod
    def open(cls, names: Sequence[str], weights: Literal["ema", "raw"], root: Path = MODELS) -> "Cascade":
        """Open the U-Nets of some names; those that were not trained are left out.

        Raises:
            ArtifactError: none is trained, two do not fit each other, or were trained with another CLIP or tokenizer.
        """
        members, hashes = [], []
        for name in names:
            hashes.append(manifest_hash(root / name) if (root / name / "manifest.json").is_file() else "")
            if not read_manifest(root / name, "decoder")["trained"]:
                continue
            facts = open_artifact(root / name, "decoder")
            network = DecoderUNet.from_pretrained(root / name if weights == "ema" else root / name / "raw")
            bounded = facts["tokenizer"] is None
            prediction = Prediction.of(steps=facts["timesteps"], bounded=bounded, **facts["prediction"])
            members.append(Member(name, network, prediction, facts))
        members.sort(key=lambda member: member.size)
        if not members:
            raise ArtifactError(f"no U-Net in {root} is trained: set `trained` to true for one of them.")
        for below, above in pairwise(members):
            if above.facts["low_size"] != below.size:
                raise ArtifactError(
                    f"the U-Net `{above.name}` enlarges images of {above.facts['low_size']} pixels, and `{below.name}` "
                    f"makes some of {below.size}: set `train_decoder.unets.{above.name}.low_size` to {below.size}."
                )
        for key, what in (("clip", "CLIP"), ("tokenizer", "tokenizer")):
            found = {member.facts[key] for member in members if member.facts[key] is not None}
            if len(found) > 1:
                raise ArtifactError(f"the U-Nets in {root} were trained with different {what}s: train them again.")
        return cls(members, " ".join(hashes))

    @property
    def clip(self) -> str | None:
        """The identity of the CLIP whose embeddings the U-Nets are told; None: they are told none."""
        return next((member.facts["clip"] for member in self.members if member.facts["clip"] is not None), None)

    @property
    def normalised(self) -> bool:
        """Whether the embeddings that the U-Nets are told have length 1."""
        return all(member.facts["normalised"] for member in self.members if member.facts["clip"] is not None)

    @property
    def low_size(self) -> int | None:
        """Pixels of the images that the first trained U-Net enlarges; None: it begins with noise alone."""
        return self.members[0].facts["low_size"]

    def to(self, device: torch.device) -> "Cascade":
        """Move the networks, and return this object."""
        for member in self.members:
            member.network.to(device)
        return self

    def generate(self, asked: Asked, sampling: Mapping[str, Sampling], seed: int, device: torch.device) -> Tensor:
        """Return x_0 of the last U-Net, float32 (N, C, S, S); pixels are in [-1, 1].

        Args:
            asked: what is wanted.
            sampling: how, for each U-Net by name.
            seed: of all noise.
            device: where the networks are.
        """
        x = asked.low
        for member in self.members:
            x = _sampled(member, sampling[member.name], asked, x, seed, device)
        assert x is not None  # there is a member
        return x


def trained(names: Sequence[str], root: Path = MODELS) -> list[str]:
    """Return those of some U-Nets that were trained."""
    return [name for name in names if read_manifest(root / name, "decoder")["trained"]]


def _sampled(
    member: Member, how: Sampling, asked: Asked, below: Tensor | None, seed: int, device: torch.device
) -> Tensor:
    """Return what one U-Net makes."""
    config, numbers = member.network.config, asked.numbers
    shape = (config.image_channels, config.size, config.size)

    def noise(what: str, of: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(normal(seed, f"decoder/{member.name}/{what}", numbers, of)).to(device)

    told = Conditions()
    if config.embed_dim:
        assert asked.image is not None
        image = Standard.from_facts(member.facts)(asked.image.to(device))
        if config.embedding_noise:
            level = torch.full((len(numbers),), how.embedding_noise, device=device)
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
            level = torch.full((len(numbers),), how.low_noise, device=device)
            told = replace(told, low_noise=level)
            large = noised(large, noise("low", shape), level)
        told = replace(told, low=large)
    keep = _keep(how) if member.prediction.bounded else None
    denoise = denoiser(member.network, member.prediction, told, how.guidance, keep, config.self_condition)
    steps = [derive(seed, f"decoder/{member.name}/steps", number) for number in numbers]
    generators = [torch.Generator().manual_seed(each) for each in steps]
    learned = member.prediction.learned_variance
    start = noise("start", shape)
    if asked.known is not None and asked.mask is not None:
        known, mask = (downsampled(each.to(device), config.size) for each in (asked.known, asked.mask))
        return inpaint(
            denoise,
            start,
            member.prediction.schedule,
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
        member.prediction.schedule,
        how.solver,
        how.steps,
        eta=how.eta,
        learned_variance=learned,
        generators=generators,
    )


def _keep(how: Sampling) -> Callable[[Tensor], Tensor] | None:
    """Return what keeps a predicted x_0 in its range."""
    if how.threshold == "dynamic":
        return partial(dynamically_clipped, percentile=how.percentile)
    return clipped if how.threshold == "clip" else None


def spherical(one: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Return points on the arc between two embeddings, (K, D): sin((1-a)θ)/sin θ · u + sin(aθ)/sin θ · v.

    Source: Shoemake, "Animating rotation with quaternion curves", 1985. Lengths go from the one's to the other's.

    Args:
        one: (D,).
        other: (D,).
        share: a, how far from the first to the second, 0 to 1, (K,).
    """
    lengths = one.norm(), other.norm()
    u, v = one / lengths[0], other / lengths[1]
    angle = torch.arccos((u * v).sum().clamp(-1, 1))
    far = torch.lerp(lengths[0], lengths[1], share)[:, None]
    if float(angle) < 1e-4:  # the arc is a line
        return far * torch.nn.functional.normalize(torch.lerp(u, v, share[:, None]), dim=1)
    along = (torch.sin((1 - share) * angle)[:, None] * u + torch.sin(share * angle)[:, None] * v) / torch.sin(angle)
    return far * along
