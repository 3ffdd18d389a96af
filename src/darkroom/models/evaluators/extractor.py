"""The in-domain extractor: a small classifier of the classes of the data, whose features the scores compare.

It is an evaluator: `train_extractor` trains it on the train split, and no generator may be trained with it.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.networks import SavedNetwork
from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.protocol import to_network
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase, Recipe


def block(inputs: int, width: int, stride: int, size: int = 3) -> nn.Sequential:
    """Return convolution, group norm, SiLU: no batch norm, so outputs do not depend on the other images of a batch."""
    return nn.Sequential(
        nn.Conv2d(inputs, width, size, stride=stride, padding=size // 2, bias=False),
        nn.GroupNorm(math.gcd(8, width), width),
        nn.SiLU(),
    )


class Classifier(SavedNetwork):
    """A small convolutional classifier on uint8 images.

    Args:
        in_channels: 1, 3 or 4.
        classes: number of classes.
        channels: width of each level; each but the first halves the resolution.
        features: D, length of the feature vector.
        dropout: fraction of features dropped before the head while training.
    """

    made_by = ("extractor", "train_extractor")

    def __init__(
        self, in_channels: int, classes: int, channels: list[int], features: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "in_channels": in_channels,
            "classes": classes,
            "channels": list(channels),
            "features": features,
            "dropout": dropout,
        }
        self.dim = features
        levels = [block(in_channels, channels[0], 1), *(block(*widths, 2) for widths in pairwise(channels))]
        # Two more blocks at the lowest resolution: with three levels the receptive field is 25 x 25 pixels, not 9 x 9.
        self.levels = nn.Sequential(*levels, *(block(channels[-1], channels[-1], 1) for _ in range(2)))
        self.project = nn.Linear(channels[-1], features)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(features, classes)

    def features(self, images: Tensor) -> Tensor:
        """Return the features, (N, D) float32, of uint8 images (N, C, H, W).

        They are pre-activation features, which are closer to the Gaussian that a Fréchet distance assumes.

        Raises:
            DarkroomError: not uint8, or another number of channels.
        """
        expected = self.config["in_channels"]
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != expected:
            raise DarkroomError(
                f"the extractor needs uint8 images of shape (N, {expected}, H, W), "
                f"not {images.dtype} of shape {tuple(images.shape)}: check `ingest.channels` in params.yaml."
            )
        maps = self.levels(to_network(images))  # (N, C, h, w)
        return self.project(maps.mean((2, 3))).float()

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits, (N, classes), from features (N, D)."""
        return self.head(self.dropout(nn.functional.silu(features)))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, (N, classes), of uint8 images (N, C, H, W)."""
        return self.logits(self.features(images))


class ExtractorRecipe(Recipe):
    """L = cross-entropy of the classes, of logits + log π, π the frequencies of the classes in the train split.

    Logit adjustment (Menon et al., "Long-tail learning via logit adjustment", 2021, arXiv 2007.07314, equation 10): the
    logits alone, which scores use, then have the least error over equally weighted classes. Otherwise a rare class is
    best never answered. With equally frequent classes it changes nothing.
    """

    def __init__(
        self, model: Classifier, train: IndexedDataset, val: IndexedDataset, counts: Sequence[int] | None = None
    ) -> None:
        """Set the parts; `counts`: images of each class in the train split (0 counts as 1/2); None: no adjustment."""
        self.model, self.train, self.val = model, train, val
        self.modules: dict[str, nn.Module] = {"extractor": model}
        self.phases = (Phase("extractor", self.loss),)
        self._log_prior = None if counts is None else log_prior(counts)

    def loss(self, batch: Batch) -> Losses:
        """Return the cross-entropy and the accuracy."""
        return {name: values.mean() for name, values in self.validate(batch).items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return cross-entropy and accuracy of each image, (N,); the loop sets evaluation mode, so without dropout."""
        return class_scores(self.modules["extractor"](batch.data["images"]), batch.data["labels"], self._log_prior)


def class_scores(logits: Tensor, labels: Tensor, log_prior: Tensor | None = None) -> dict[str, Tensor]:
    """Return `loss`, the cross-entropy of logits (N, K) + log π, and `accuracy`, of the logits alone, (N,) each."""
    logits = logits.float()
    accuracy = (logits.argmax(dim=1) == labels).float()
    if log_prior is not None:
        logits = logits + log_prior.to(logits)
    return {"loss": functional.cross_entropy(logits, labels, reduction="none"), "accuracy": accuracy}


def log_prior(counts: Sequence[int]) -> Tensor:
    """Return log π_c = log(n_c / n), (K,) float64, from the images of each class; 0 counts as 1/2."""
    images = torch.tensor(counts, dtype=torch.float64).clamp(min=0.5)
    return (images / images.sum()).log()
