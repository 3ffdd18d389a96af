"""Trains the classifier whose features the scores compare."""

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from darkroom.metrics.extractors.in_domain import Classifier
from darkroom.recipes.data import LabelledImages
from darkroom.training.recipe import Batch, Losses, Phase


class ExtractorRecipe:
    """L = cross-entropy of the classes."""

    def __init__(self, model: Classifier, train: LabelledImages, val: LabelledImages) -> None:
        self.train, self.val = train, val
        self.modules: dict[str, nn.Module] = {"extractor": model}
        self.phases = (Phase("extractor", self.loss),)

    def loss(self, batch: Batch) -> Losses:
        """Return the cross-entropy and the share of images classified as they should be."""
        logits = self.modules["extractor"](batch.data["images"]).float()
        labels = batch.data["labels"]
        accuracy = (logits.argmax(dim=1) == labels).float().mean()
        return {"loss": functional.cross_entropy(logits, labels), "accuracy": accuracy}

    def validate(self, batch: Batch) -> Losses:
        """Return the same without dropout: the loop puts the network in evaluation mode."""
        return self.loss(batch)

    def preview(self) -> NDArray[np.uint8] | None:
        """Return nothing: a classifier makes no images."""
        return None
