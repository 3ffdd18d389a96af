"""The metrics that are measured in features, of any extractor that has what they need. Loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from torch import Tensor

    from darkroom.metrics.batches import Views
    from darkroom.metrics.reference import Reference


class FrechetMetric:
    """Fréchet distance of the features: `fd`, `fd_debiased`, `fd_se`."""

    scores, needs = in_all_features(FRECHET, DEBIASED), ("statistics",)

    def measure(self, samples: Samples, reference: Reference) -> Mapping[str, float]:
        """Return `fd` at exactly N, `fd_debiased` and `fd_se`; of too few samples for an error `fd` alone."""
        from darkroom.metrics.frechet import frechet_scores

        return frechet_scores("fd", reference.moments, reference.root, samples.features, samples.block)


class KernelMetric:
    """Kernel distance of the features, over all pairs: `kid`, `kid_se`."""

    scores, needs = in_all_features(KERNEL), ("real",)

    def measure(self, samples: Samples, reference: Reference) -> Mapping[str, float]:
        """Return `kid` and its error."""
        from darkroom.metrics.kernel import kernel_jackknife

        if reference.kid_within is None:
            return {}
        real, weights = reference.kid_features, reference.kid_weights
        kid = kernel_jackknife(real, reference.kid_within, samples.features, samples.block, weights=weights)
        return kid.named("kid")


class SpatialMetric:
    """sFID: `sfid`, `sfid_debiased`, `sfid_se`, where both sides have the features of sFID."""

    scores, needs = SPATIAL, ("spatial",)

    def measure(self, samples: Samples, reference: Reference) -> Mapping[str, float]:
        """Return the three; of too few samples for an error `sfid` alone."""
        from darkroom.metrics.frechet import frechet_scores

        places: Any = reference.spatial
        return frechet_scores("sfid", places.moments, places.root, samples.seen.spatial.cpu(), samples.block)  # type: ignore[union-attr]


class InceptionScoreMetric:
    """The Inception Score of all images, which needs no reference."""

    scores, needs = INCEPTION_SCORE, ("logits",)

    def measure(self, samples: Samples, reference: object) -> Mapping[str, float]:
        """Return `inception_score` and its error."""
        from darkroom.metrics.inception_score import inception_scores

        return inception_scores(samples.seen.logits, samples.blocks)  # type: ignore[arg-type]


class CmmdMetric:
    """CMMD, in CLIP's features alone."""

    scores, needs = CMMD, ("real",)

    def measure(self, samples: Samples, reference: Reference) -> Mapping[str, float]:
        """Return `cmmd` and its error; nothing in another extractor's features."""
        from darkroom.metrics.kernel import cmmd

        if samples.extractor != "clip":
            return {}
        return cmmd(samples.features, reference.kid_features, samples.blocks, reference.kid_weights)


class ManifoldMetric:
    """Precision, recall, density and coverage: the stages measure them in the in-domain extractor's features."""

    scores, needs = MANIFOLD, ("real",)

    def measure(self, samples: Samples, reference: Reference) -> Mapping[str, float]:
        """Return the four with their errors; nothing with fewer than 6 images on a side."""
        from darkroom.metrics.manifold import LEAST, manifold

        if min(len(reference.kid_features), len(samples.seen)) < LEAST:
            return {}
        return manifold(samples.features, reference.kid_features, weights=reference.kid_weights)


DISTANCE_METRICS: tuple[Metric, ...] = (FrechetMetric(), KernelMetric(), SpatialMetric())


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
