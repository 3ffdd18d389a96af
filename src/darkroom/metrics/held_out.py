"""Distances from held-out images, which no training saw, where these are enough for a reference.

A model that copies its training images has the best distance from these; a distance from held-out images rewards no
copy. They are enough from `ENOUGH` images a feature on: of n images with D independent features of variance 1 the
Fréchet distance from their own distribution is about D (D / 4 + 1) / n. At n = 10 D that is a fortieth of D, the
variance of all features, and it grows as 1 / n.
"""

from dataclasses import replace

from darkroom.metrics.held_out_names import ENOUGH
from darkroom.metrics.reference import Reference, build_reference


def held_out_reference(reference: Reference) -> Reference | None:
    """Return a reference made of the held-out images of another, whose own images are then the unseen ones.

    Returns:
        None where there are fewer than `ENOUGH` of them a feature.
    """
    images, labels = reference.unseen, reference.unseen_labels
    if images is None or len(images) < ENOUGH * images.shape[1]:
        return None
    count = len(images)
    found = build_reference(
        reference.extractor, reference.sha256, [images], count, count, labels, list(reference.classes)
    )
    return replace(found, unseen=reference.kid_features, unseen_labels=reference.labels)
