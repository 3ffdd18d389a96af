"""Image embeddings from texts: noise, guidance, solver, and of several candidates the one that fits its text best."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from darkroom.artifacts.manifest import open_artifact
from darkroom.artifacts.models import PRIOR, PRIOR_FOLDER
from darkroom.device import fill_batch
from darkroom.diffusion.denoiser import Guidance, denoiser
from darkroom.diffusion.objectives import stored_objective
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.types import Denoise, Objective
from darkroom.models.prior.network import PriorNetwork
from darkroom.models.prior.settings import PriorSampling
from darkroom.rng import derive, normal


@dataclass(frozen=True)
class Prior:
    """A prior, and what its numbers mean.

    objective: that the network is trained with.
    normalised: whether stored image embeddings have length 1.
    metadata: its manifest, where it was opened.
    """

    network: PriorNetwork
    objective: Objective
    normalised: bool
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, weights: Literal["ema", "raw"], folder: Path = PRIOR_FOLDER) -> "Prior":
        """Open a trained prior, averaged weights or raw ones.

        Raises:
            ArtifactError: missing or damaged; names the file.
        """
        metadata = open_artifact(folder, PRIOR)
        network = PriorNetwork.from_pretrained(folder if weights == "ema" else folder / "raw")
        return cls(network, stored_objective(metadata, "gaussian"), metadata["normalised"], metadata)


def text_direction(text: Tensor) -> Tensor:
    """Return text embeddings (N, D) as the prior reads them, at length sqrt(D), float32: the direction alone counts.

    So they are the same whether they are stored normalised or not.
    """
    return functional.normalize(text.float(), dim=1) * text.shape[1] ** 0.5


def prior_denoiser(
    network: Any, objective: Objective, text: Tensor, encodings: Tensor | None, guidance: Guidance | float = 1.0
) -> Denoise:
    """Return the denoiser of a prior under texts; guidance leads away from embedding and encodings both nulled.

    Args:
        network: maps x, timesteps, text, encodings and which are kept to its output.
        objective: what that means.
        text: as `text_direction` gives it, (N, D).
        encodings: (N, L, W), or None.
        guidance: a scale of 1 evaluates the network with its texts alone, bit for bit.
    """
    kept = torch.arange(2 * len(text), device=text.device) < len(text)
    texts, words = torch.cat([text, text]), None if encodings is None else torch.cat([encodings, encodings])
    return denoiser(
        lambda x, timesteps, before: network(x, timesteps, text, encodings),
        objective,
        guidance,
        both=lambda x, timesteps, before: network(x, timesteps, texts, words, kept),
    )


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
        prior: the network, on its device.
        text: text embeddings, normalised or not, (N, D).
        encodings: of the same texts, (N, L, W); None where the prior reads none.
        how: solver, steps, guidance, candidates, and how many at once.
        seed: of all noise.
        numbers: which embeddings they are.
    """
    device = next(prior.network.parameters()).device
    encodings = None if prior.network.config.text_shape is None else encodings
    dim, count = text.shape[1], how.candidates
    noise = torch.from_numpy(normal(seed, "prior/start", numbers, (count, dim))).flatten(0, 1)  # (N K, D)
    directions = text_direction(text.cpu())
    jobs = torch.arange(len(text) * count)
    found = [noise[:0].to(device)]
    for at in range(0, len(jobs), how.batch):
        piece = jobs[at : at + how.batch]
        full = fill_batch(piece, how.batch)
        rows = full // count
        words = None if encodings is None else encodings.cpu()[rows].float().to(device)
        denoise = prior_denoiser(prior.network, prior.objective, directions[rows].to(device), words, Guidance.of(how))
        seeds = [derive(seed, f"prior/steps/{job % count}", numbers[job // count]) for job in full.tolist()]
        generators = [torch.Generator().manual_seed(each) for each in seeds]
        start = noise[full].to(device)
        made = sample(denoise, start, prior.objective, how, generators)
        found.append(made[: len(piece)])
    embeddings = prior.network.from_unit(torch.cat(found))
    if prior.normalised:
        embeddings = functional.normalize(embeddings, dim=1)
    embeddings = embeddings.unflatten(0, (len(text), count))  # (N, K, D)
    fits = (embeddings * directions[:, None].to(device)).sum(dim=2)
    return embeddings[torch.arange(len(text), device=device), fits.argmax(dim=1)]
