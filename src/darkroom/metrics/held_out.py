"""Distances from held-out images, which no training saw, where these are enough for a reference.

A model that copies its training images has the best distance from these; a distance from held-out images rewards no
copy. They are enough from `ENOUGH` images a feature on: of n images with D independent features of variance 1 the
Fréchet distance from their own distribution is about D (D / 4 + 1) / n. At n = 10 D that is a fortieth of D, the
variance of all features, and it grows as 1 / n.
"""

from darkroom.metrics.building import build_reference, with_held_out
from darkroom.metrics.held_out_names import ENOUGH
from darkroom.metrics.matching import FREQUENCY, Distribution, count_classes, missing
from darkroom.metrics.reference import Reference


def held_out_reference(reference: Reference, distribution: Distribution = FREQUENCY) -> Reference | None:
    """Return a reference made of the held-out images of another, whose own images are then the unseen ones.

    Returns:
        None where there are fewer than `ENOUGH` of them a feature, or none of a class that the samples were asked for.
    """
    images, labels = reference.unseen_views, reference.unseen_labels
    if images is None or len(images) < ENOUGH * images.pool.shape[1]:
        return None
    if distribution != FREQUENCY and labels is not None:
        counts = count_classes(labels, len(reference.classes))
        if missing(distribution, reference.classes, counts):
            return None
    count = len(images)
    found = build_reference(
        reference.extractor, reference.sha256, [images], count, count, labels, list(reference.classes)
    )
    return with_held_out(found, reference.kept, reference.labels, len(reference.kept))
