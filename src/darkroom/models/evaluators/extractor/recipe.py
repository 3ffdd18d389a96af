"""The recipe of the in-domain extractor: cross-entropy of the classes."""

from torch import Tensor, nn
from torch.nn import functional

from darkroom.models.evaluators.extractor.network import Classifier
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase, Recipe


class ExtractorRecipe(Recipe):
    """L = cross-entropy of the classes."""

    def __init__(self, model: Classifier, train: IndexedDataset, val: IndexedDataset) -> None:
        self.model, self.train, self.val = model, train, val
        self.modules: dict[str, nn.Module] = {"extractor": model}
        self.phases = (Phase("extractor", self.loss),)

    def loss(self, batch: Batch) -> Losses:
        """Return the cross-entropy and the accuracy."""
        return {name: values.mean() for name, values in self.validate(batch).items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return cross-entropy and accuracy of each image, (N,); the loop sets evaluation mode, so without dropout."""
        logits = self.modules["extractor"](batch.data["images"]).float()
        labels = batch.data["labels"]
        accuracy = (logits.argmax(dim=1) == labels).float()
        return {"loss": functional.cross_entropy(logits, labels, reduction="none"), "accuracy": accuracy}
