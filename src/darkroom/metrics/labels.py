"""Whether a generated image shows the class that was asked for."""

from collections.abc import Sequence

import torch
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.metrics.extractors.in_domain import Classifier


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
