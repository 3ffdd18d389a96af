"""The recipe of the in-domain extractor: cross-entropy of the classes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.models.evaluators.extractor.network import Classifier
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase, Recipe


class ExtractorRecipe(Recipe):
    """L = cross-entropy of the classes, of logits + log π, π the frequencies of the classes in the train split.

    Logit adjustment (Menon et al., "Long-tail learning via logit adjustment", 2021, arXiv 2007.07314, equation 10): the
    logits by themselves, which scores use, then have the least error over classes that each count alike. Otherwise a
    rare class is best left out of the answers. Where classes are equally frequent it changes nothing.
    """

    judge = "val/accuracy"  # the loss rises where a network is too sure of itself, right or wrong

    def __init__(
        self, model: Classifier, train: IndexedDataset, val: IndexedDataset, counts: Sequence[int] | None = None
    ) -> None:
        """Take in the parts.

        Args:
            model: the untrained network.
            train: what is trained on.
            val: what is validated on.
            counts: images of each class in the train split; a class of none counts as half an image; None: no
                adjustment.
        """
        self.model, self.train, self.val = model, train, val
        self.modules: dict[str, nn.Module] = {"extractor": model}
        self.phases = (Phase("extractor", self.loss),)
        self._log_prior = None if counts is None else log_prior(counts)

    def loss(self, batch: Batch) -> Losses:
        """Return the cross-entropy and the accuracy."""
        return {name: values.mean() for name, values in self.validate(batch).items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return cross-entropy and accuracy of each image, (N,); the loop sets evaluation mode, so without dropout.

        The accuracy is that of the logits by themselves.
        """
        logits = self.modules["extractor"](batch.data["images"]).float()
        labels = batch.data["labels"]
        accuracy = (logits.argmax(dim=1) == labels).float()
        if self._log_prior is not None:
            logits = logits + self._log_prior.to(logits)
        return {"loss": functional.cross_entropy(logits, labels, reduction="none"), "accuracy": accuracy}


def log_prior(counts: Sequence[int]) -> Tensor:
    """Return log π_c = log(n_c / n), (K,) float64, of images of each class; of none half an image."""
    images = torch.tensor(counts, dtype=torch.float64).clamp(min=0.5)
    return (images / images.sum()).log()
