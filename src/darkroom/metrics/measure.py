"""Scoring of images: the protocol of a metric, its inputs, and `measure`, which runs metrics. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

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
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from darkroom.metrics.batches import Views
    from darkroom.metrics.reference import Reference


@dataclass(frozen=True)
class Samples:
    """The input of a metric: generated images, or real ones in their place.

    extractor: the network of the features: in_domain, inception, …
    views: the features of N images, on the CPU.
    blocks: blocks of the jackknife, at most: see `count_blocks`.
    numbers: class number of each image, (N,) int64, spread evenly over the blocks; None: no classes.
    images: yields the images in batches, uint8 (n, C, H, W); its argument names the work on the progress line.
    classifier: the in-domain extractor; `classifier.logits(features)` are those of `classes`.
    labels: the class that each image was requested to show; None for an image of no class.
    recognised: the classifier's accuracy on held-out real images of each class: `by_class` of `recognition`.
    device: where networks run.
    """

    extractor: str
    views: Views
    blocks: int
    numbers: Tensor | None = None
    images: Callable[[str], Iterator[NDArray[np.uint8]]] | None = None
    classifier: Any = None
    classes: Sequence[str] = ()
    labels: Sequence[str | None] = ()
    recognised: Mapping[str, Any] | None = None
    device: torch.device | None = None

    @property
    def features(self) -> Tensor:
        """The features in which distances are measured, (N, D) float32."""
        return self.views.pool.cpu()

    @cached_property
    def block(self) -> Tensor:
        """The block of each image, (N,) int64."""
        from darkroom.metrics.uncertainty import assign_blocks

        return assign_blocks(len(self.views), self.blocks, self.numbers)


@dataclass(frozen=True)
class Measurement:
    """Scores, and the card's entries for them."""

    scores: dict[str, float] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    baselines: dict[str, Any] = field(default_factory=dict)

    def __or__(self, other: Measurement) -> Measurement:
        """Return both, this one first."""
        return Measurement(
            self.scores | other.scores,
            self.protocol | other.protocol,
            self.notes + other.notes,
            self.baselines | other.baselines,
        )


class Metric(Protocol):
    """The protocol of a metric: the scores that it may return, its inputs, and the measurement."""

    @property
    def scores(self) -> Sequence[Score]:
        """The scores that it may return."""
        ...

    @property
    def needs(self) -> Sequence[str]:
        """The required inputs, without which it is left out: see `available`."""
        ...

    def measure(self, samples: Samples, reference: Any, /) -> Mapping[str, float] | Measurement:
        """Return values by the names of `scores`, and their standard errors as NAME_se.

        `reference` is a `Reference`; it may be None for a metric that needs neither `statistics` nor `real`.
        """
        ...


def available(samples: Samples, reference: Reference | None) -> set[str]:
    """Return the available inputs, as the names that `Metric.needs` may hold.

    statistics: mean and covariance of the reference; real: the features of its images; spatial: those of sFID, of both
    sides; logits: Inception's, of the samples; images: the samples' pixels; classifier: the in-domain extractor.
    """
    known = {
        "statistics": reference is not None,
        "real": reference is not None and len(reference.kid_features) > 0,
        "spatial": reference is not None and reference.spatial is not None and samples.views.spatial is not None,
        "logits": samples.views.logits is not None,
        "images": samples.images is not None,
        "classifier": samples.classifier is not None,
    }
    return {name for name, present in known.items() if present}


def measure(samples: Samples, reference: Reference | None, metrics: Iterable[Metric]) -> Measurement:
    """Return the scores of samples against a reference by each metric whose inputs are available.

    Args:
        samples: the images, through one extractor.
        reference: real images through the same extractor, `matched` to the classes of the samples; None: none.
        metrics: for example `SAMPLE_METRICS`.
    """
    inputs, measurement = available(samples, reference), Measurement()
    for metric in metrics:
        if inputs.issuperset(metric.needs):
            one = metric.measure(samples, reference)
            measurement |= one if isinstance(one, Measurement) else Measurement(dict(one))
    return measurement


@dataclass(frozen=True)
class FeatureMetric:
    """A metric of features, with the function that measures it."""

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
    distance = kernel_jackknife(real, reference.kid_within, samples.features, samples.block, weights=weights)
    return distance.named("kid")


def _spatial(samples: Samples, reference: Reference) -> Mapping[str, float]:
    from darkroom.metrics.frechet import frechet_scores

    features, places = samples.views.spatial, reference.spatial
    assert features is not None and places is not None  # they are needed
    return frechet_scores("sfid", places.moments, places.root, features.cpu(), samples.block)


def _inception_score(samples: Samples, reference: object) -> Mapping[str, float]:
    from darkroom.metrics.inception_score import inception_scores

    assert samples.views.logits is not None  # they are needed
    return inception_scores(samples.views.logits, samples.blocks)


def _cmmd(samples: Samples, reference: Reference) -> Mapping[str, float]:
    """Return CMMD in the features of CLIP; nothing for other networks."""
    from darkroom.metrics.kernel import cmmd

    if samples.extractor != "clip":
        return {}
    return cmmd(samples.features, reference.kid_features, samples.blocks, reference.kid_weights)


def _manifold(samples: Samples, reference: Reference) -> Mapping[str, float]:
    """Return precision, recall, density and coverage; nothing with fewer than 6 images on a side."""
    from darkroom.metrics.manifold import LEAST, manifold

    if min(len(reference.kid_features), len(samples.views)) < LEAST:
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

    `reference` is `matched` to the requested distribution of classes; `classes` (N,) int64 are spread evenly over the
    blocks, None: no classes.

    Returns:
        by the plain names: `fd`, `fd_debiased`, `fd_se`, `kid`, `kid_se` and, if both sides have the features of sFID,
        `sfid`, `sfid_debiased`, `sfid_se`. With too few samples for a standard error, only the plain values.

    Raises:
        DarkroomError: fewer than 2 samples, different numbers of features, values that are not finite.
    """
    from darkroom.metrics.batches import Views

    views = features if isinstance(features, Views) else Views(features)
    return measure(Samples(reference.extractor, views, blocks, classes), reference, DISTANCE_METRICS).scores
