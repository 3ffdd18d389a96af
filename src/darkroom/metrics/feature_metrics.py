"""The metrics that are measured in features, of any extractor that has what they need. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from darkroom.metrics.measure import Metric, Samples, measure
from darkroom.metrics.sample_scores import (
    CMMD,
    DEBIASED,
    FRECHET,
    INCEPTION_SCORE,
    KERNEL,
    MANIFOLD,
    SPATIAL,
    in_all_features,
)
from darkroom.metrics.score import Score

if TYPE_CHECKING:
    from torch import Tensor

    from darkroom.metrics.batches import Views
    from darkroom.metrics.reference import Reference


@dataclass(frozen=True)
class FeatureMetric:
    """A metric of features by the function that measures it."""

    scores: tuple[Score, ...]
    needs: tuple[str, ...]
    measure: Callable[[Samples, Reference], Mapping[str, float]]


def _frechet(samples: Samples, reference: Reference) -> Mapping[str, float]:
    from darkroom.metrics.frechet import frechet_scores

    return frechet_scores("fd", reference.moments, reference.root, samples.features, samples.block)


def _kernel(samples: Samples, reference: Reference) -> Mapping[str, float]:
    from darkroom.metrics.kernel import kernel_jackknife

    if reference.kid_within is None:
        return {}
    real, weights = reference.kid_features, reference.kid_weights
    found = kernel_jackknife(real, reference.kid_within, samples.features, samples.block, weights=weights)
    return found.named("kid")


def _spatial(samples: Samples, reference: Reference) -> Mapping[str, float]:
    from darkroom.metrics.frechet import frechet_scores

    features, places = samples.seen.spatial, reference.spatial
    assert features is not None and places is not None  # they are needed
    return frechet_scores("sfid", places.moments, places.root, features.cpu(), samples.block)


def _inception_score(samples: Samples, reference: object) -> Mapping[str, float]:
    from darkroom.metrics.inception_score import inception_scores

    assert samples.seen.logits is not None  # they are needed
    return inception_scores(samples.seen.logits, samples.blocks)


def _cmmd(samples: Samples, reference: Reference) -> Mapping[str, float]:
    """Return nothing in another network's features than CLIP's."""
    from darkroom.metrics.kernel import cmmd

    if samples.extractor != "clip":
        return {}
    return cmmd(samples.features, reference.kid_features, samples.blocks, reference.kid_weights)


def _manifold(samples: Samples, reference: Reference) -> Mapping[str, float]:
    """Return nothing with fewer than 6 images on a side."""
    from darkroom.metrics.manifold import LEAST, manifold

    if min(len(reference.kid_features), len(samples.seen)) < LEAST:
        return {}
    return manifold(samples.features, reference.kid_features, weights=reference.kid_weights)


DISTANCE_METRICS: tuple[Metric, ...] = (
    FeatureMetric(in_all_features(FRECHET, DEBIASED), ("statistics",), _frechet),
    FeatureMetric(in_all_features(KERNEL), ("real",), _kernel),
    FeatureMetric(SPATIAL, ("spatial",), _spatial),
)
INCEPTION_METRIC = FeatureMetric(INCEPTION_SCORE, ("logits",), _inception_score)
CMMD_METRIC = FeatureMetric(CMMD, ("real",), _cmmd)
MANIFOLD_METRIC = FeatureMetric(MANIFOLD, ("real",), _manifold)


def distances(
    features: Tensor | Views, reference: Reference, blocks: int, classes: Tensor | None = None
) -> dict[str, float]:
    """Return the distances of generated images from a reference, from their features (N, D) float32.

    Args:
        features: of the generated images; of Inception also those of sFID.
        reference: `matched` to the distribution of classes that they were asked to have.
        blocks: of the jackknife, at most: see `count_blocks`.
        classes: class number of each image, (N,) int64, which are spread evenly over the blocks; None: of no class.

    Returns:
        by the plain names: `fd`, `fd_debiased`, `fd_se`, `kid`, `kid_se` and, where both sides have the features of
        sFID, `sfid`, `sfid_debiased`, `sfid_se`. Of too few samples for a standard error, the plain values alone.

    Raises:
        DarkroomError: fewer than 2 samples, another number of features, values that are not finite.
    """
    from darkroom.metrics.batches import Views

    seen = features if isinstance(features, Views) else Views(features)
    return measure(Samples(reference.extractor, seen, blocks, classes), reference, DISTANCE_METRICS).scores
