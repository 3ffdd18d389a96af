"""The noise floor of some samples: what as many held-out real images of their classes score."""

from collections.abc import Mapping

from torch import Tensor

from darkroom.metrics.manifold import LEAST, manifold
from darkroom.metrics.matching import FREQUENCY, Distribution, alike_rows, missing
from darkroom.metrics.reference import Reference, distances


def distances_of_unseen(
    reference: Reference, matched: Reference, distribution: Distribution, wanted: Tensor, blocks: int
) -> dict[str, float]:
    """Return the noise floor of some samples: what as many held-out real images of their classes score, and `n`.

    Args:
        reference: with the features of held-out images.
        matched: what the samples are compared with.
        distribution: of classes that they were asked to have.
        wanted: class number of each sample, (N,) int64, -1: none.
        blocks: of the jackknife, fewer where there are fewer than two images a block.

    Returns:
        as `distances`, with `n`, which is less than N where there are too few; empty below 4 images. In the in-domain
        extractor's features also as `manifold`, from 6 images on.
    """
    if reference.unseen is None or reference.unseen_labels is None:
        return {}
    rows, alike = alike_rows(reference.unseen_labels, wanted, distribution)
    blocks = min(blocks, len(rows) // 2)
    if blocks < 2:
        return {}
    # Of images whose classes are chance the error is that of images and classes: blocks of any images.
    found = distances(reference.unseen[rows], matched, blocks, reference.unseen_labels[rows] if alike else None)
    if reference.extractor == "in_domain" and min(len(rows), len(matched.kid_features)) >= LEAST:
        found |= manifold(reference.unseen[rows], matched.kid_features, weights=matched.kid_weights)
    return {"n": len(rows), **found}


def notes_on_classes(
    reference: Reference, distribution: Distribution, samples: int, floor: Mapping[str, float], split: str
) -> list[str]:
    """Return what a card says of classes that real images lack, and of a noise floor of fewer images.

    Args:
        reference: as it is stored.
        distribution: of classes that the samples were asked to have.
        samples: how many there are.
        floor: of `distances_of_unseen`.
        split: of the held-out images.
    """
    notes = []
    if distribution != FREQUENCY:
        if lacking := missing(distribution, reference.classes, reference.counts):
            notes.append(f"the reference has no image of {', '.join(lacking)}, which the samples were asked to show")
        if not isinstance(distribution, str) and len(reference.kid_features) < reference.n:
            kept = len(reference.kid_features)
            notes.append(f"{reference.extractor}: the reference is weighted from {kept:,} of {reference.n:,} images")
    if not floor:
        notes.append(f"no noise floor: the split {split} has too few images of the classes of the samples")
    elif floor["n"] < samples:
        notes.append(
            f"{reference.extractor}: the noise floor is that of {floor['n']:,.0f} real images, fewer than the samples, "
            "for the split has no more of their classes: compare fd_debiased with it, and not fd"
        )
    return notes
