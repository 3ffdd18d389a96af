"""Scores a prior: how near its embeddings come to those of the images whose captions it was given."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from darkroom.data.draw import drawn
from darkroom.models.prior.data import CaptionedEmbeddings
from darkroom.models.prior.sample import Prior, sample_prior
from darkroom.models.prior.settings import Evaluate
from darkroom.training.recipe import Gather


def cosines(made: Tensor, true: Tensor, text: Tensor) -> dict[str, float]:
    """Return mean cosines over images, float64.

    `cosine` of a sampled embedding with the true one, and its standard error `cosine_se`; beside it what it must be
    compared with: `cosine_other`, of a sampled embedding with the true one of each other image, and `cosine_text`, of
    the text embedding with that of its image, which a prior that hands on its text would have.

    Args:
        made: sampled image embeddings, (N, D), N at least 2.
        true: those of the images.
        text: those of their captions.
    """
    made, true, text = (functional.normalize(each.double().cpu(), dim=1) for each in (made, true, text))
    own, count = (made * true).sum(dim=1), len(made)
    others = (made @ true.sum(dim=0) - own) / (count - 1)
    return {
        "cosine": float(own.mean()),
        "cosine_se": float(own.std()) / math.sqrt(count),
        "cosine_other": float(others.mean()),
        "cosine_text": float((text * true).sum(dim=1).mean()),
    }


class Scorer:
    """Scores a prior in training on drawn validation images that have a caption.

    every: images of the training between scores.
    """

    def __init__(self, rows: CaptionedEmbeddings, how: Evaluate, every: int) -> None:
        self.rows, self.how, self.every = rows, how, every
        self.count = min(how.images, len(rows))

    def scores(
        self, prior: Prior, rank: int = 0, processes: int = 1, gather: Gather = lambda rows: rows
    ) -> dict[str, float]:
        """Return `cosines`. Process `rank` of so many samples its share, and all get the scores; {} below 2 images."""
        if self.count < 2:
            return {}
        mine = np.array_split(drawn(len(self.rows), self.count), processes)[rank].tolist()
        found = sample_rows(prior, self.rows, mine, self.how)
        made, true, text = gather(found).unbind(dim=1)
        return cosines(made, true, text)


def sample_rows(prior: Prior, rows: CaptionedEmbeddings, numbers: Sequence[int], how: Evaluate) -> Tensor:
    """Return sampled, true and text embeddings of some rows, float32 (N, 3, D), on the network's device."""
    stored = {name: torch.from_numpy(np.asarray(value)) for name, value in rows.__getitems__(numbers).items()}
    made = sample_prior(prior, stored["text"], stored.get("encoding"), how, how.seed, numbers)
    return torch.stack([made, *(stored[name].float().to(made.device) for name in ("image", "text"))], dim=1)
