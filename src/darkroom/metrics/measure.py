"""How images are scored: what a metric is, what it sees, and `measure`, which takes any of them. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

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
    """Generated images, or real ones in their place, as a metric sees them.

    extractor: the network whose features are seen: in_domain, inception, …
    seen: the features of N images, on the CPU.
    blocks: of the jackknife, at most: see `count_blocks`.
    numbers: class number of each image, (N,) int64, spread evenly over the blocks; None: they are of no class.
    images: yields the images in batches, uint8 (n, C, H, W); its argument names the work on the progress line.
    classifier: the in-domain extractor; `classifier.logits(features)` are those of `classes`.
    labels: the class that each image was requested to show; None for an image of no class.
    recognised: how many held-out real images of each class the classifier recognises: `by_class` of `recognition`.
    device: where networks run.
    """

    extractor: str
    seen: Views
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
        """The features that distances are taken in, (N, D) float32."""
        return self.seen.pool.cpu()

    @cached_property
    def block(self) -> Tensor:
        """The block of each image, (N,) int64."""
        from darkroom.metrics.uncertainty import assign_blocks

        return assign_blocks(len(self.seen), self.blocks, self.numbers)


@dataclass(frozen=True)
class Further:
    """Scores, and what the card says of them under these names."""

    scores: dict[str, float] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    baselines: dict[str, Any] = field(default_factory=dict)

    def __or__(self, other: Further) -> Further:
        """Return both, this one first."""
        return Further(
            self.scores | other.scores,
            self.protocol | other.protocol,
            self.notes + other.notes,
            self.baselines | other.baselines,
        )


class Metric(Protocol):
    """The protocol of a metric: the scores that it may return, what it needs, and how it is measured."""

    @property
    def scores(self) -> Sequence[Score]:
        """The scores that it may return."""
        ...

    @property
    def needs(self) -> Sequence[str]:
        """What it is left out without: see `given`."""
        ...

    def measure(self, samples: Samples, reference: Any, /) -> Mapping[str, float] | Further:
        """Return values by the names of `scores`, and their standard errors as NAME_se.

        `reference` is a `Reference`; it may be None for a metric that needs neither `statistics` nor `real`.
        """
        ...


def given(samples: Samples, reference: Reference | None) -> set[str]:
    """Return what is known of samples and reference: the names that `Metric.needs` may hold.

    statistics: mean and covariance of the reference; real: the features of its images; spatial: those of sFID, of both
    sides; logits: Inception's, of the samples; images: the samples' pixels; classifier: the in-domain extractor.
    """
    known = {
        "statistics": reference is not None,
        "real": reference is not None and len(reference.kid_features) > 0,
        "spatial": reference is not None and reference.spatial is not None and samples.seen.spatial is not None,
        "logits": samples.seen.logits is not None,
        "images": samples.images is not None,
        "classifier": samples.classifier is not None,
    }
    return {name for name, there in known.items() if there}


def measure(samples: Samples, reference: Reference | None, metrics: Iterable[Metric]) -> Further:
    """Return the scores of samples against a reference by each metric that has what it needs.

    Args:
        samples: the images, through one extractor.
        reference: real images through the same one, `matched` to the classes of the samples; None: there are none.
        metrics: for example `SAMPLE_METRICS`.
    """
    there, found = given(samples, reference), Further()
    for metric in metrics:
        if there.issuperset(metric.needs):
            one = metric.measure(samples, reference)
            found |= one if isinstance(one, Further) else Further(dict(one))
    return found
