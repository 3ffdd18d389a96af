"""Image embeddings from texts: noise, guidance, solver, and of several candidates the one that fits its text best."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from darkroom.artifacts.manifest import open_artifact
from darkroom.artifacts.models import PRIOR, PRIOR_FOLDER
from darkroom.diffusion.denoising import Denoise, Denoised, Solver, sample
from darkroom.diffusion.prediction import Prediction
from darkroom.models.prior.network import PriorNetwork
from darkroom.random import derive, normal


class PriorSampling(Protocol):
    """How image embeddings are sampled; see `models.prior.settings`."""

    solver: Solver
    steps: int
    guidance: float
    candidates: int
    batch: int


@dataclass(frozen=True)
class Prior:
    """A prior, and what its numbers mean.

    prediction: what the network predicts, and under which noise.
    normalised: whether stored image embeddings have length 1.
    facts: its manifest, where it was opened.
    """

    network: PriorNetwork
    prediction: Prediction
    normalised: bool
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, weights: Literal["ema", "raw"], folder: Path = PRIOR_FOLDER) -> "Prior":
        """Open a trained prior, averaged weights or raw ones.

        Raises:
            ArtifactError: missing or damaged; names the file.
        """
        facts = open_artifact(folder, PRIOR)
        network = PriorNetwork.from_pretrained(folder if weights == "ema" else folder / "raw")
        return cls(network, prediction_of(**facts["prediction"]), facts["normalised"], facts)


def prediction_of(schedule: Any, timesteps: int, target: Any) -> Prediction:
    """Return what a prior predicts: embeddings have no range, and their variance is not learned."""
    return Prediction.of(
        schedule, timesteps, target=target, learned_variance=False, variance_range="linear", bounded=False
    )


def text_direction(text: Tensor) -> Tensor:
    """Return text embeddings (N, D) as the prior is told them, at length sqrt(D), float32: the direction alone counts.

    So they are the same whether they are stored normalised or not.
    """
    return functional.normalize(text.float(), dim=1) * text.shape[1] ** 0.5


def guided(network: Any, prediction: Prediction, text: Tensor, encodings: Tensor | None, guidance: float) -> Denoise:
    """Return what a sampler asks: f(x, null) + scale * (f(x, text) - f(x, null)), embedding and encodings both nulled.

    Ho and Salimans, 2022, arXiv 2207.12598. A scale of 1 asks f(x, text) alone, bit for bit.

    Args:
        network: maps x, t, text, encodings and which are kept to its output.
        prediction: what that means.
        text: as `text_direction` gives it, (N, D).
        encodings: (N, L, W), or None.
        guidance: the scale.
    """
    told = torch.arange(2 * len(text), device=text.device) < len(text)
    twice = None if encodings is None else torch.cat([encodings, encodings])

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        if guidance == 1:
            output = network(x, steps, text, encodings)
        else:
            both = network(torch.cat([x, x]), torch.cat([steps, steps]), torch.cat([text, text]), twice, told)
            conditional, nothing = both.chunk(2)
            output = nothing + guidance * (conditional - nothing)
        return Denoised(prediction.x0(output, x, steps))

    return denoise


@torch.no_grad()
def sample_prior(
    prior: Prior, text: Tensor, encodings: Tensor | None, how: PriorSampling, seed: int, numbers: Sequence[int]
) -> Tensor:
    """Return an image embedding of each text as CLIP's are stored, float32 (N, D), on the network's device.

    Of `how.candidates` embeddings of a text, the one with the largest dot product with the text embedding is kept
    (Ramesh et al., 2022, section 2.2). Embedding i follows from (seed, numbers[i]) and its text: the network
    always sees `how.batch` of them, the last ones padded. On one thread bit for bit; on several a matrix product may
    round by the row, so the last bits depend on the place in the batch.

    Args:
        prior: the network; it is asked where it lies.
        text: text embeddings, normalised or not, (N, D).
        encodings: of the same texts, (N, L, W); None where the prior is told none.
        how: solver, steps, guidance, candidates, and how many at once.
        seed: of all noise.
        numbers: which embeddings they are.
    """
    device = next(prior.network.parameters()).device
    encodings = None if prior.network.config.text_shape is None else encodings
    dim, count = text.shape[1], how.candidates
    noise = torch.from_numpy(normal(seed, "prior/start", numbers, (count, dim))).flatten(0, 1)  # (N K, D)
    told = text_direction(text.cpu())
    jobs = torch.arange(len(text) * count)
    found = [noise[:0].to(device)]
    for at in range(0, len(jobs), how.batch):
        piece = jobs[at : at + how.batch]
        full = torch.cat([piece, piece[:1].expand(how.batch - len(piece))])
        rows = full // count
        words = None if encodings is None else encodings.cpu()[rows].float().to(device)
        denoise = guided(prior.network, prior.prediction, told[rows].to(device), words, how.guidance)
        seeds = [derive(seed, f"prior/steps/{job % count}", numbers[job // count]) for job in full.tolist()]
        generators = [torch.Generator().manual_seed(each) for each in seeds]
        start = noise[full].to(device)
        made = sample(denoise, start, prior.prediction.schedule, how.solver, how.steps, generators=generators)
        found.append(made[: len(piece)])
    embeddings = prior.network.from_unit(torch.cat(found))
    if prior.normalised:
        embeddings = functional.normalize(embeddings, dim=1)
    embeddings = embeddings.unflatten(0, (len(text), count))  # (N, K, D)
    fits = (embeddings * told[:, None].to(device)).sum(dim=2)
    return embeddings[torch.arange(len(text), device=device), fits.argmax(dim=1)]
