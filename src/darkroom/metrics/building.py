"""References of real images: sums of features that come in batches, and the features that are kept."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics.batches import Views
from darkroom.metrics.frechet import covariance_root
from darkroom.metrics.kernel import within
from darkroom.metrics.matching import (
    BALANCED,
    FREQUENCY,
    NO_CLASS,
    Distribution,
    class_weights,
    count_classes,
    kept_rows,
    missing,
    shares_of,
)
from darkroom.metrics.moments import BlockMoments, WeightedMoments
from darkroom.metrics.reference import Reference, spatial_name
from darkroom.metrics.sample_scores import ENOUGH


class _Plan:
    """Which of `total` images are kept, and what each counts where every class counts alike."""

    def __init__(self, total: int, kid_images: int, labels: Tensor | None, classes: Sequence[str]) -> None:
        self.total, self.classes = total, tuple(classes)
        self.numbers = torch.full((total,), NO_CLASS) if labels is None else labels
        self.counts = count_classes(self.numbers, len(classes))
        self.rows = torch.tensor(kept_rows(total, kid_images, self.numbers))
        equal = len(set(self.counts[self.counts > 0].tolist())) < 2 and not (self.numbers < 0).any()
        self.balance, self.weights = None, None
        if not equal and self.counts.any():
            self.balance = class_weights(self.numbers, shares_of(BALANCED, classes, self.counts))
        if len(self.rows) < total and labels is not None:
            # Those of no class count as one more: a draw that was filled up with rare classes is weighted back.
            own = torch.where(self.numbers < 0, len(classes), self.numbers)
            fractions = torch.bincount(own, minlength=len(classes) + 1).double() / total
            self.weights = class_weights(own[self.rows], fractions)


class _Sums:
    """Of all images in one kind of features: sums, weighted sums, and the features that are kept."""

    def __init__(self, plan: _Plan, features: int) -> None:
        self.plan, self.seen = plan, 0
        self.sums, self.weighted = BlockMoments(features), WeightedMoments(features)
        self.kept: list[Tensor] = []

    def update(self, features: Tensor) -> None:
        """Take in the next images, (n, D) float32."""
        plan, features = self.plan, features.cpu()
        self.sums.update(features, torch.zeros(len(features), dtype=torch.int64))
        if plan.balance is not None:
            self.weighted.update(features, plan.balance[self.seen : self.seen + len(features)])
        here = (plan.rows >= self.seen) & (plan.rows < self.seen + len(features))
        self.kept.append(features[plan.rows[here] - self.seen])
        self.seen += len(features)

    def reference(self, extractor: str, sha256: str, kernel: bool = True) -> Reference:
        """Return the reference; without `kernel` one that has no kernel distance."""
        plan, moments, features = self.plan, self.sums.compute().all(), torch.cat(self.kept)
        return Reference(
            extractor=extractor,
            sha256=sha256,
            n=moments.count,
            mean=moments.mean,
            cov=moments.cov,
            root=covariance_root(moments.cov),
            kid_features=features,
            kid_within=within(features, weights=plan.weights) if kernel else None,
            kid_weights=plan.weights,
            classes=plan.classes,
            counts=plan.counts,
            labels=plan.numbers[plan.rows],
            balanced=self.weighted.compute() if self.weighted.count > 1 else None,
        )


def build_reference(
    extractor: str,
    sha256: str,
    batches: Iterable[Tensor | Views],
    total: int,
    kid_images: int,
    labels: Tensor | None = None,
    classes: Sequence[str] = (),
) -> Reference:
    """Return the reference of `total` real images whose features come in batches (n, D) float32.

    Memory does not grow with `total`: sums, and the features of min(kid_images, total) images, drawn, in the order in
    which they come, and of eight images of each class at least. Of Inception the same images are also held in the
    features of sFID, without a kernel distance. `labels` are class numbers, (total,) int64, -1: none.

    Raises:
        DarkroomError: another number of images than `total`, fewer than 2, or features that are not finite.
    """
    if total < 2:
        raise DarkroomError(
            f"a reference needs at least 2 images, not {total}: choose another `reference_stats.split`."
        )
    plan = _Plan(total, kid_images, labels, classes)
    pool: _Sums | None = None
    spatial: _Sums | None = None
    for batch in batches:
        seen = batch if isinstance(batch, Views) else Views(batch)
        pool = pool or _Sums(plan, seen.pool.shape[1])
        pool.update(seen.pool)
        if seen.spatial is not None:
            spatial = spatial or _Sums(plan, seen.spatial.shape[1])
            spatial.update(seen.spatial)
    if pool is None or pool.seen != total:
        found = 0 if pool is None else pool.seen
        raise DarkroomError(f"{found} images came for the reference, and {total} were announced by the index.")
    of_spatial = None if spatial is None else spatial.reference(spatial_name(extractor), sha256, kernel=False)
    return replace(pool.reference(extractor, sha256), spatial=of_spatial)


def with_held_out(reference: Reference, seen: Views, labels: Tensor, most: int) -> Reference:
    """Return a reference with other images than its own, for noise floors: at most `most` drawn ones of `seen`, (H, …).

    `labels` are class numbers, (H,) int64, -1: none; classes are as frequent among the drawn images as in the split.
    """
    rows = sorted(drawn(len(seen), most))
    kept, numbers, spatial = seen.take(rows), labels[rows], reference.spatial
    if spatial is not None:
        spatial = replace(spatial, unseen=kept.spatial, unseen_labels=numbers)
    return replace(reference, unseen=kept.pool, unseen_labels=numbers, unseen_logits=kept.logits, spatial=spatial)


def held_out_reference(reference: Reference, distribution: Distribution = FREQUENCY) -> Reference | None:
    """Return a reference made of the held-out images of another, whose own images are then the unseen ones.

    A model that copies its training images has the best distance from these; a distance from held-out images, which no
    training saw, rewards no copy. They are enough from `ENOUGH` images a feature on: of n images with D independent
    features of variance 1 the Fréchet distance from their own distribution is about D (D / 4 + 1) / n. At n = 10 D that
    is a fortieth of D, the variance of all features, and it grows as 1 / n.

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
