"""Train the prior on images that have a caption: denoise image embeddings conditioned on their texts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darkroom.data.draw import drawn
from darkroom.data.embeddings import EmbeddingShards
from darkroom.device import to_device
from darkroom.errors import DarkroomError
from darkroom.models.prior.network import Prior, sample_prior, text_direction
from darkroom.models.prior.settings import Evaluate, PriorDiffusion
from darkroom.rng import random_numbers
from darkroom.training.data import Positions
from darkroom.training.recipe import Batch, Gather, IndexedDataset, Losses, Phase, Recipe


class CaptionedEmbeddings:
    """Rows of images that have a caption: `image` and `text` float16 (N, D), `encoding` (N, L, W) if stored.

    rows: the row of each image in the shards.
    """

    def __init__(self, shards: EmbeddingShards) -> None:
        self.shards = shards
        self.names = ("image", "text", *(() if shards.encoding_shape is None else ("encoding",)))
        self.rows: NDArray[np.int64] = np.array(captioned_rows(shards.captions), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the embeddings and encodings of some rows."""
        return dict(self.shards.__getitems__(self.rows[list(rows)].tolist(), self.names))

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, to identify the images."""
        return self.shards.keys_of(self.rows[list(rows)].tolist())

    @property
    def groups(self) -> NDArray[np.int64]:
        """The number of the group of each row, (N,)."""
        return self.shards.groups[self.rows]


def captioned_rows(captions: Sequence[str | None]) -> list[int]:
    """Return the rows that have a caption, in order; the text embeddings of the others are zero."""
    return [row for row, caption in enumerate(captions) if caption is not None]


def require_texts(rows: CaptionedEmbeddings) -> None:
    """Check that there are captions to learn from, and log the number of images without one.

    Raises:
        DarkroomError: no image has one.
    """
    if not len(rows):
        raise DarkroomError("no training image has a caption, which the prior needs: add captions to the source.")
    if missing := len(rows.shards) - len(rows):
        print(f"{missing:,} of {len(rows.shards):,} images have no caption and are left out")


def cosines(sampled: Tensor, true: Tensor, text: Tensor) -> dict[str, float]:
    """Return mean cosines over images, float64.

    `cosine` of a sampled embedding with the true one, and its standard error `cosine_se`; and its
    baselines: `cosine_other`, of a sampled embedding with the true one of each other image, and `cosine_text`, of
    the text embedding with that of its image, the value of a prior that returns its input.

    Args:
        sampled: sampled image embeddings, (N, D), N at least 2.
        true: embeddings of the images.
        text: embeddings of their captions.
    """
    sampled, true, text = (functional.normalize(each.double().cpu(), dim=1) for each in (sampled, true, text))
    own, count = (sampled * true).sum(dim=1), len(sampled)
    others = (sampled @ true.sum(dim=0) - own) / (count - 1)
    return {
        "cosine": float(own.mean()),
        "cosine_se": float(own.std()) / math.sqrt(count),
        "cosine_other": float(others.mean()),
        "cosine_text": float((text * true).sum(dim=1).mean()),
    }


class Scorer:
    """Scores a prior in training on drawn validation images that have a caption.

    every: training images between two scores.
    """

    def __init__(self, rows: CaptionedEmbeddings, settings: Evaluate, every: int) -> None:
        self.rows, self.settings, self.every = rows, settings, every
        self.count = min(settings.images, len(rows))

    def scores(
        self, prior: Prior, rank: int = 0, processes: int = 1, gather: Gather = lambda rows: rows
    ) -> dict[str, float]:
        """Return `cosines`. Process `rank` of `count` samples its part, and all get the scores; {} below 2 images."""
        if self.count < 2:
            return {}
        mine = np.array_split(drawn(len(self.rows), self.count), processes)[rank].tolist()
        embeddings = sample_rows(prior, self.rows, mine, self.settings)
        sampled, true, text = gather(embeddings).unbind(dim=1)
        return cosines(sampled, true, text)


def sample_rows(prior: Prior, rows: CaptionedEmbeddings, numbers: Sequence[int], settings: Evaluate) -> Tensor:
    """Return sampled, true and text embeddings of some rows, float32 (N, 3, D), on the network's device."""
    stored = {name: torch.from_numpy(np.asarray(value)) for name, value in rows.__getitems__(numbers).items()}
    sampled = sample_prior(prior, stored["text"], stored.get("encoding"), settings, settings.seed, numbers)
    return torch.stack([sampled, *(stored[name].float().to(sampled.device) for name in ("image", "text"))], dim=1)


class PriorRecipe(Recipe):
    """The objective's loss of f(z_t, t, y), z_t a noisy image embedding, y its text, sometimes dropped.

    With the target x0 of Gaussian diffusion it is L_prior of Ramesh et al., 2022, arXiv 2204.06125, equation 1.
    """

    def __init__(
        self,
        prior: Prior,
        settings: PriorDiffusion,
        seed: int,
        train: IndexedDataset,
        val: IndexedDataset,
        scorer: Scorer | None = None,
    ) -> None:
        """Set the untrained prior, and the scorer of validation images while training; None: no scores.

        `train` and `val` have `image` and `text` (N, D), and `encoding` (N, L, W) if it is read.
        """
        self.prior, self.model, self.settings, self.seed = prior, prior.network, settings, seed
        self.train, self.val, self.scorer = train, val, scorer
        self.modules: dict[str, nn.Module] = {"prior": self.model}
        self.phases = (Phase("prior", self.loss),)
        self.blocks = self.model.blocks
        self.evaluations = [(scorer.every, self.evaluate)] if scorer else []

    def loss(self, batch: Batch) -> Losses:
        """Return the loss, texts dropped; randomness follows from each image's place in the training."""
        return {"loss": self._losses(batch, "train", self.settings.text_dropout).mean()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's loss with its text; randomness follows from its row."""
        return {"loss": self._losses(batch, "val", dropout=0.0)}

    def evaluate(self, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return the cosines of sampled validation embeddings."""
        assert self.scorer is not None  # `evaluations` is empty without one
        return self.scorer.scores(self.prior, rank, count, gather)

    def _losses(self, batch: Batch, stream: str, dropout: float) -> Tensor:
        """Return the loss of each image, (N,)."""
        objective = self.prior.objective
        x0 = self.model.to_unit(batch.data["image"])  # (N, D)
        text, encoding = text_direction(batch.data["text"]), batch.data.get("encoding")
        # Per position: the noise; then numbers for the time and for dropout.
        normals, uniforms = random_numbers(self.seed, f"prior/{stream}", batch.positions.tolist(), x0.shape[1], 2)
        noise = to_device(normals, x0.device)
        time = to_device(objective.times(uniforms[:, 0]), x0.device)
        keep = to_device(uniforms[:, 1] >= dropout, x0.device)
        x = objective.add_noise(x0, noise, time)
        words = None if encoding is None else encoding.float()
        output = self.modules["prior"](x, objective.timesteps(time), text, words, keep)
        return objective.losses(output, x0, noise, x, time)["loss"]
