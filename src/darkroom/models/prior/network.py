"""The diffusion prior: from a text's CLIP embedding to matching image embeddings, by diffusers' PriorTransformer.

Ramesh et al., "Hierarchical text-conditional image generation with CLIP latents", 2022, arXiv 2204.06125, section 2.2:
a transformer with a causal mask reads the encoded text, the text embedding, the time, the noisy image embedding, and a
learned query, whose output is the prediction. Dropped texts, and the places after a text's end, are learned nulls. The
best of several candidates for a text is kept, and the cascade of the decoder generates images from it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from diffusers import PriorTransformer
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError, open_artifact
from darkroom.artifacts.models import PRIOR, PRIOR_FOLDER
from darkroom.artifacts.networks import SavedNetwork
from darkroom.device import fill_batch
from darkroom.diffusion.denoiser import Guidance, denoiser
from darkroom.diffusion.objectives import stored_objective
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.scalers import EmbeddingScaler
from darkroom.diffusion.types import Denoise, Objective
from darkroom.models.decoder.cascade import Decoder
from darkroom.models.decoder.sample import SampleRequest
from darkroom.models.prior.settings import PriorSampling
from darkroom.rng import derive, normal

_ADDED = 4  # tokens besides the encodings: the text embedding, the time, the noisy image embedding, the query
_NULL = 0.02  # initial standard deviation of learned tokens


@dataclass(frozen=True)
class PriorConfig:
    """The shape of a prior.

    embed_dim: length of the embeddings.
    text_shape: tokens and width of the text encoding; None: only the text embedding is read.
    width: of a token.
    depth: transformer blocks.
    heads: attention heads of each.
    dropout: fraction of the features dropped while training.
    """

    embed_dim: int
    text_shape: tuple[int, int] | None
    width: int
    depth: int
    heads: int
    dropout: float = 0.0


class PriorNetwork(SavedNetwork):
    """The transformer with its texts. Predicts the target of its objective for an image embedding."""

    shape = PriorConfig
    made_by = ("prior", "train_prior")

    def __init__(self, config: PriorConfig) -> None:
        super().__init__()
        self.config = config
        length, text_width = config.text_shape or (0, 0)
        transformer: Any = PriorTransformer(
            num_attention_heads=config.heads,
            attention_head_dim=config.width // config.heads,
            num_layers=config.depth,
            embedding_dim=config.embed_dim,
            num_embeddings=length,
            additional_embeddings=_ADDED,
            dropout=config.dropout,
            encoder_hid_proj_type=None,  # its own needs encodings as wide as embeddings
        )
        for statistic in (transformer.clip_mean, transformer.clip_std):  # given, not learned
            statistic.requires_grad_(False)
        for parameter in transformer.proj_to_clip_embeddings.parameters():  # the output is zero at first
            nn.init.zeros_(parameter)
        for token in (transformer.positional_embedding, transformer.prd_embedding):
            nn.init.normal_(token, std=_NULL)
        self.transformer = transformer
        self.null_text = nn.Parameter(torch.randn(config.embed_dim))
        if config.text_shape is not None:
            self.words = nn.Linear(text_width, config.width)
            self.null_words = nn.Parameter(_NULL * torch.randn(length, config.width))

    @torch.no_grad()
    def set_scaler(self, scaler: EmbeddingScaler) -> None:
        """Set mean and standard deviation of the elements of stored image embeddings.

        They are among the weights, under the names that diffusers' pipelines read.
        """
        self.transformer.clip_mean.copy_(scaler.mean[None])
        self.transformer.clip_std.copy_(scaler.std[None])

    def to_unit(self, embeddings: Tensor) -> Tensor:
        """Return stored image embeddings (N, D) at about unit variance, float32."""
        return (embeddings.float() - self.transformer.clip_mean) / self.transformer.clip_std

    def from_unit(self, embeddings: Tensor) -> Tensor:
        """Return the inverse of `to_unit`."""
        return embeddings * self.transformer.clip_std + self.transformer.clip_mean

    @property
    def blocks(self) -> list[nn.Module]:
        """The blocks whose activations may be computed again in the backward pass."""
        return list(self.transformer.transformer_blocks)

    def forward(
        self, x: Tensor, timesteps: Tensor, text: Tensor, encodings: Tensor | None, keep: Tensor | None = None
    ) -> Tensor:
        """Return the prediction, (N, D).

        Args:
            x: noisy image embeddings, of about unit variance, (N, D).
            timesteps: (N,), integer or float.
            text: text embeddings, also of about unit variance, (N, D).
            encodings: of the same texts, zero after their end, (N, L, W); None if the configuration has none.
            keep: true where the text is kept, false where the null replaces it, bool (N,); None: all are kept.
        """
        keep = torch.ones(len(x), dtype=torch.bool, device=x.device) if keep is None else keep
        text = torch.where(keep[:, None], text, self.null_text.to(text.dtype))
        words = None
        if self.config.text_shape is not None:
            assert encodings is not None
            words = self.words(encodings)  # (N, L, width)
            given = (encodings != 0).any(dim=2) & keep[:, None]
            words = torch.where(given[:, :, None], words, self.null_words.to(words.dtype))
        # diffusers applies its causal mask only together with a mask of tokens.
        mask = torch.ones(len(x), 0 if words is None else words.shape[1], dtype=torch.bool, device=x.device)
        return self.transformer(x, timesteps, text, words, mask, return_dict=False)[0]


@dataclass(frozen=True)
class Prior:
    """A prior, and the meaning of its inputs and outputs.

    objective: that of its training.
    normalised: whether stored image embeddings have length 1.
    metadata: its manifest, if it was opened.
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

    So it does not matter whether they are stored normalised.
    """
    return functional.normalize(text.float(), dim=1) * text.shape[1] ** 0.5


def prior_denoiser(
    network: Any, objective: Objective, text: Tensor, encodings: Tensor | None, guidance: Guidance | float = 1.0
) -> Denoise:
    """Return the denoiser of a prior under texts; the unconditional input has embedding and encodings both nulled.

    Args:
        network: maps x, timesteps, text, encodings and `keep` to its output.
        objective: the meaning of that output.
        text: from `text_direction`, (N, D).
        encodings: (N, L, W), or None.
        guidance: a scale of 1 evaluates the network with its texts alone, bit for bit.
    """
    keep = torch.arange(2 * len(text), device=text.device) < len(text)
    texts, words = torch.cat([text, text]), None if encodings is None else torch.cat([encodings, encodings])
    return denoiser(
        lambda x, timesteps, before: network(x, timesteps, text, encodings),
        objective,
        guidance,
        both=lambda x, timesteps, before: network(x, timesteps, texts, words, keep),
    )


@torch.no_grad()
def sample_prior(
    prior: Prior, text: Tensor, encodings: Tensor | None, settings: PriorSampling, seed: int, numbers: Sequence[int]
) -> Tensor:
    """Return an image embedding of each text as CLIP's are stored, float32 (N, D), on the network's device.

    Of `settings.candidates` embeddings of a text, the one with the largest dot product with the text embedding is kept
    (Ramesh et al., 2022, section 2.2). Embedding i follows from (seed, numbers[i]) and its text: the network always
    sees `settings.batch` of them, the last ones padded. On one thread bit for bit; on several a matrix product may
    round by the row, so the last bits depend on the place in the batch.

    Args:
        prior: the network, on its device.
        text: text embeddings, normalised or not, (N, D).
        encodings: of the same texts, (N, L, W); None if the prior reads none.
        settings: solver, steps, guidance, candidates, and batch size.
        seed: seed of all noise.
        numbers: those of the embeddings.
    """
    device = next(prior.network.parameters()).device
    encodings = None if prior.network.config.text_shape is None else encodings
    dim, count, guidance = text.shape[1], settings.candidates, Guidance.of(settings)
    noise = torch.from_numpy(normal(seed, "prior/start", numbers, (count, dim))).flatten(0, 1)  # (N K, D)
    directions = text_direction(text.cpu())
    jobs = torch.arange(len(text) * count)
    results = [noise[:0].to(device)]
    for at in range(0, len(jobs), settings.batch):
        piece = jobs[at : at + settings.batch]
        full = fill_batch(piece, settings.batch)
        rows = full // count
        words = None if encodings is None else encodings.cpu()[rows].float().to(device)
        denoise = prior_denoiser(prior.network, prior.objective, directions[rows].to(device), words, guidance)
        seeds = [derive(seed, f"prior/steps/{job % count}", numbers[job // count]) for job in full.tolist()]
        generators = [torch.Generator().manual_seed(each) for each in seeds]
        start = noise[full].to(device)
        sampled = sample(denoise, start, prior.objective, settings, generators)
        results.append(sampled[: len(piece)])
    embeddings = prior.network.from_unit(torch.cat(results))
    if prior.normalised:
        embeddings = functional.normalize(embeddings, dim=1)
    embeddings = embeddings.unflatten(0, (len(text), count))  # (N, K, D)
    fits = (embeddings * directions[:, None].to(device)).sum(dim=2)
    return embeddings[torch.arange(len(text), device=device), fits.argmax(dim=1)]


@dataclass(frozen=True)
class TextToImage:
    """A prior and a decoder of the same CLIP, and the sampling settings of the prior, with the seed of its noise."""

    prior: Prior
    decoder: Decoder
    settings: PriorSampling
    seed: int

    def embeddings(self, text: Tensor, encodings: Tensor | None, numbers: Sequence[int]) -> Tensor:
        """Return image embeddings, float32 (N, D), of text embeddings (N, D) and encodings (N, L, W)."""
        return sample_prior(self.prior, text, encodings, self.settings, self.seed, numbers).cpu()

    def images(self, text: Tensor, encodings: Tensor | None, numbers: Sequence[int]) -> Iterator[Tensor]:
        """Yield images in batches, uint8 (n, C, H, W).

        Image i follows from its text, the seeds and numbers[i], bit for bit, regardless of the other images.

        Args:
            text: CLIP's text embeddings, (N, D).
            encodings: of the same texts, (N, L, W), if the prior or the decoder reads them.
            numbers: those of the images.
        """
        embeddings = self.embeddings(text, encodings, numbers)
        return self.decoder.images(SampleRequest(numbers, embeddings, encodings))


def require_same_clip(prior: Prior, decoder: Decoder, clip: str, where: str) -> None:
    """Check that prior and decoder use embeddings of the same CLIP, stored in the same way.

    Args:
        prior: an opened prior.
        decoder: an opened decoder.
        clip: the identity of the CLIP of the text embeddings that the prior will read.
        where: its folder, or an artifact made with it, for the message.

    Raises:
        ArtifactError: they do not; names the stage to run.
    """
    if prior.metadata["clip"] != clip:
        raise ArtifactError(f"{PRIOR_FOLDER} was trained with another CLIP than {where}: run `dvc repro train_prior`.")
    decoder.cascade.require_clip(clip, where)
    decoder.cascade.require_clip(clip, str(PRIOR_FOLDER), prior.normalised)
