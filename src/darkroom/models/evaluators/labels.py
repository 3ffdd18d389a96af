"""Whether a generated image shows the class that was asked for."""

from collections.abc import Sequence

import torch
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.models.evaluators.extractor.network import Classifier


def require_known(labels: Sequence[str | None], classes: Sequence[str]) -> None:
    """Check that the classifier knows every label.

    Raises:
        ArtifactError: it does not; names the labels.
    """
    unknown = sorted({str(label) for label in labels} - set(classes))
    if unknown:
        raise ArtifactError(
            f"the extractor does not know the labels {unknown}: train it on these classes (`dvc repro`)."
        )


SURE = 0.9  # probability of the most likely class from which an image counts as one that the classifier knows


def class_scores(classifier: Classifier, features: Tensor) -> dict[str, float]:
    """Return how surely images are of a class, and whether any class is left out, asked for or not.

    Args:
        classifier: the in-domain extractor, in evaluation mode, on the CPU.
        features: its features of the images, (N, D), float32.

    Returns:
        confident: the share of images whose most likely class has a probability of at least `SURE`.
        rarest_class: the share of the images that are taken for the class which the fewest are taken for.
    """
    with torch.inference_mode():
        best = classifier.cpu().logits(features).double().softmax(dim=1)
    counts = torch.bincount(best.argmax(dim=1), minlength=best.shape[1]).double()
    return {
        "confident": (best.amax(dim=1) >= SURE).double().mean().item(),
        "rarest_class": (counts.min() / counts.sum()).item(),
    }


def label_accuracy(
    classifier: Classifier, features: Tensor, labels: Sequence[str | None], classes: Sequence[str]
) -> float:
    """Return the share of images whose most likely class is their label.

    Args:
        classifier: the in-domain extractor, in evaluation mode, on the CPU.
        features: its features of the images, (N, D), float32.
        labels: the class asked for, N names.
        classes: the classifier's classes, in the order of its logits.

    Raises:
        ArtifactError: a label that the classifier does not know.
    """
    unknown = sorted({str(label) for label in labels} - set(classes))
    if unknown:
        raise ArtifactError(
            f"the extractor does not know the labels {unknown}: train it on these classes (`dvc repro`)."
        )
    with torch.inference_mode():
        found = classifier.cpu().logits(features).argmax(dim=1)
    asked = torch.tensor([classes.index(str(label)) for label in labels])
    return (found == asked).double().mean().item()
