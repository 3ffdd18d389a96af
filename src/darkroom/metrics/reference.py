"""The reference of a score: statistics and features of real images from one extractor."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics.batches import Views
from darkroom.metrics.frechet import covariance_root, frechet_distance, frechet_of_two
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
from darkroom.metrics.moments import BlockMoments, Moments, WeightedMoments, block_sums, require_finite
from darkroom.metrics.sample_scores import ENOUGH

_ROWS = 4096  # features in one float64 copy


@dataclass(frozen=True)
class Reference:
    """Real images through one extractor: `reference_stats` stores it, the scoring stages read it.

    extractor: its name: in_domain, inception, …
    sha256: of its weights.
    n: images in mean and cov.
    mean, cov, root: (D,), (D, D) and (D, D) float64; cov is unbiased, root is cov^½.
    kid_features: (K, D) float32, of drawn images, K <= n or a few more of rare classes.
    kid_within: the real-real term of the kernel distance; None: there is no kernel distance in these features.
    kid_weights: of kid_features, (K,) float64 of sum 1; None: equal weights.
    classes: names, by number.
    counts: of the n images, by class, int64.
    labels: class numbers of kid_features, (K,) int64, -1: none.
    balanced: the moments with equally frequent classes; None: the plain moments.
    unseen, unseen_labels: features (H, D) and class numbers (H,) of drawn images of the held-out split.
    unseen_logits: Inception's logits of the same held-out images, (H, 1008) float32.
    spatial: for Inception, the same images in the features of sFID.
    """

    extractor: str
    sha256: str
    n: int
    mean: Tensor
    cov: Tensor
    root: Tensor
    kid_features: Tensor
    kid_within: float | None
    kid_weights: Tensor | None = None
    classes: tuple[str, ...] = ()
    counts: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    balanced: Moments | None = None
    unseen: Tensor | None = None
    unseen_labels: Tensor | None = None
    unseen_logits: Tensor | None = None
    spatial: "Reference | None" = None

    @property
    def stored_views(self) -> Views:
        """Return the stored features, in the order of `labels`."""
        return Views(self.kid_features, None if self.spatial is None else self.spatial.kid_features)

    @property
    def unseen_views(self) -> Views | None:
        """Return the features of the held-out images, in the order of `unseen_labels`; None: there are none."""
        if self.unseen is None:
            return None
        return Views(self.unseen, None if self.spatial is None else self.spatial.unseen, self.unseen_logits)

    @property
    def moments(self) -> Moments:
        """Return n, mean and cov as one value."""
        return Moments(self.n, self.mean, self.cov)

    def matched(self, distribution: Distribution) -> "Reference":
        """Return the same images weighted to a distribution of classes; `FREQUENCY` changes nothing.

        With `BALANCED` the moments are those of all n images, weighted, so `fd` is as exact as with `FREQUENCY`. With
        numbers by class they are those of the stored features.

        Raises:
            DarkroomError: no image is of any of the classes.
        """
        if distribution == FREQUENCY or (distribution == BALANCED and self.balanced is None):
            return self
        if not len(self.labels) or not shares_of(distribution, self.classes, self.counts).isfinite().all():
            raise DarkroomError(
                f"the reference ({self.n:,} images) has no images of the classes requested from the samples: "
                "sample by frequency (`sample_generator.common.labels`), or choose another `reference_stats.split`."
            )
        counts = count_classes(self.labels, len(self.classes))
        weights = class_weights(self.labels, shares_of(distribution, self.classes, counts))
        moments = self.balanced
        if moments is None or distribution != BALANCED:
            sums = WeightedMoments(self.kid_features.shape[1])
            for rows, own in zip(self.kid_features.split(_ROWS), weights.split(_ROWS), strict=True):
                sums.update(rows, own)
            moments = sums.compute()
        return replace(
            self,
            n=moments.count,
            mean=moments.mean,
            cov=moments.cov,
            root=covariance_root(moments.cov),
            kid_within=None if self.kid_within is None else within(self.kid_features, weights=weights),
            kid_weights=weights,
            spatial=None if self.spatial is None else self.spatial.matched(distribution),
        )

    def save(self, folder: Path) -> Path:
        """Write `folder/{extractor}.safetensors` and return its path. Equal references give equal bytes.

        The features of sFID are a file of their own, `folder/{extractor}_spatial.safetensors`.
        """
        if self.spatial is not None:
            self.spatial.save(folder)
        path = folder / _file(self.extractor)
        tensors: dict[str, Tensor | None] = {
            "n": torch.tensor(self.n),
            "kid_within": None if self.kid_within is None else torch.tensor(self.kid_within, dtype=torch.float64),
            **{name: getattr(self, name) for name in (*_TENSORS, *_OPTIONAL)},
        }
        if self.balanced is not None:
            tensors |= {"balanced_n": torch.tensor(self.balanced.count)}
            tensors |= {"balanced_mean": self.balanced.mean, "balanced_cov": self.balanced.cov}
        # One metadata key only: safetensors writes several in an order that differs between processes.
        metadata = {"reference": json.dumps({"extractor_sha256": self.sha256, "classes": self.classes})}
        save_file({name: each.contiguous() for name, each in tensors.items() if each is not None}, path, metadata)
        return path

    @staticmethod
    def load(folder: Path, extractor: str, sha256: str | None = None) -> "Reference":
        """Read `folder/{extractor}.safetensors`; where `sha256` is given, the extractor's weights must have that hash.

        Raises:
            ArtifactError: missing, damaged, incomplete, or made with other weights; names the file.
        """
        path, of_spatial = folder / _file(extractor), spatial_name(extractor)
        if not path.is_file():
            raise ArtifactError(
                f"{path} is missing: add `{extractor}` to `reference_stats.extractors` in params.yaml, "
                "and run reference_stats (`dvc repro`)."
            )
        try:
            with safe_open(path, framework="pt") as file:
                metadata = json.loads((file.metadata() or {})["reference"])
                tensors: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            made_with, balanced = metadata["extractor_sha256"], None
            if "balanced_n" in tensors:
                balanced = Moments(int(tensors["balanced_n"]), tensors["balanced_mean"], tensors["balanced_cov"])
            reference = Reference(
                extractor=extractor,
                sha256=made_with,
                n=int(tensors["n"]),
                kid_within=float(tensors["kid_within"]) if "kid_within" in tensors else None,
                classes=tuple(metadata["classes"]),
                balanced=balanced,
                spatial=Reference.load(folder, of_spatial, sha256) if (folder / _file(of_spatial)).is_file() else None,
                **{name: tensors[name] for name in _TENSORS},
                **{name: tensors.get(name) for name in _OPTIONAL},  # type: ignore[arg-type]
            )
        except (SafetensorError, KeyError, ValueError) as error:
            raise ArtifactError(f"{path} is damaged ({error}): restore it with `dvc checkout {folder}`.") from error
        if sha256 is not None and made_with != sha256:
            raise ArtifactError(
                f"{path} was made with weights {made_with[:12]}…, but {extractor} now has {sha256[:12]}…: "
                "run reference_stats again (`dvc repro`)."
            )
        return reference


_TENSORS = ("mean", "cov", "root", "kid_features", "counts", "labels")
_OPTIONAL = ("kid_weights", "unseen", "unseen_labels", "unseen_logits")


def _file(extractor: str) -> str:
    return f"{extractor}.safetensors"


def spatial_name(extractor: str) -> str:
    """Return the name of the reference in the features of sFID."""
    return f"{extractor}_spatial"


def moments_of(features: Tensor) -> Moments:
    """Return the moments of features (N, D) float32, N at least 2, in float64."""
    features = features.cpu()
    return block_sums(features, torch.zeros(len(features), dtype=torch.int64)).all()


def frechet_between(features: Tensor, others: Tensor) -> float:
    """Return the Fréchet distance of two sets of features, (N, D) and (M, D) float32; in the small form if few.

    Raises:
        DarkroomError: fewer than 2 images in a set, or values that are not finite.
    """
    for rows in (features, others):
        require_finite(rows)
    if max(len(features), len(others)) <= features.shape[1]:
        return frechet_of_two(features, others)
    reference = moments_of(others)
    return frechet_distance(reference, covariance_root(reference.cov), moments_of(features))


class _Plan:
    """The images of `total` whose features are stored, and the weights of equally frequent classes."""

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
            # Images of no class count as one more class: weights undo the additional images of rare classes.
            own = torch.where(self.numbers < 0, len(classes), self.numbers)
            fractions = torch.bincount(own, minlength=len(classes) + 1).double() / total
            self.weights = class_weights(own[self.rows], fractions)


class _Sums:
    """Sums and weighted sums over all images in one kind of features, and the stored features."""

    def __init__(self, plan: _Plan, features: int) -> None:
        self.plan, self.count = plan, 0
        self.sums, self.weighted = BlockMoments(features), WeightedMoments(features)
        self.selected: list[Tensor] = []

    def update(self, features: Tensor) -> None:
        """Add the next images, (n, D) float32."""
        plan, features = self.plan, features.cpu()
        self.sums.update(features, torch.zeros(len(features), dtype=torch.int64))
        if plan.balance is not None:
            self.weighted.update(features, plan.balance[self.count : self.count + len(features)])
        here = (plan.rows >= self.count) & (plan.rows < self.count + len(features))
        self.selected.append(features[plan.rows[here] - self.count])
        self.count += len(features)

    def reference(self, extractor: str, sha256: str, kernel: bool = True) -> Reference:
        """Return the reference; without `kernel` it has no kernel distance."""
        plan, moments, features = self.plan, self.sums.compute().all(), torch.cat(self.selected)
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

    Memory does not grow with `total`: sums, and the features of min(kid_images, total) drawn images, in their order,
    and of at least eight images of each class. For Inception the same images are also held in the features of sFID,
    without a kernel distance. `labels` are class numbers, (total,) int64, -1: none.

    Raises:
        DarkroomError: not `total` images, fewer than 2, or features that are not finite.
    """
    if total < 2:
        raise DarkroomError(
            f"a reference needs at least 2 images, not {total}: choose another `reference_stats.split`."
        )
    plan = _Plan(total, kid_images, labels, classes)
    pool: _Sums | None = None
    spatial: _Sums | None = None
    for batch in batches:
        views = batch if isinstance(batch, Views) else Views(batch)
        pool = pool or _Sums(plan, views.pool.shape[1])
        pool.update(views.pool)
        if views.spatial is not None:
            spatial = spatial or _Sums(plan, views.spatial.shape[1])
            spatial.update(views.spatial)
    if pool is None or pool.count != total:
        count = 0 if pool is None else pool.count
        raise DarkroomError(f"the reference received {count} images, but the index lists {total}.")
    of_spatial = None if spatial is None else spatial.reference(spatial_name(extractor), sha256, kernel=False)
    return replace(pool.reference(extractor, sha256), spatial=of_spatial)


def with_held_out(reference: Reference, views: Views, labels: Tensor, most: int) -> Reference:
    """Return a reference with at most `most` other images, drawn from `views` (H, …), for noise floors.

    `labels` are class numbers, (H,) int64, -1: none; classes are as frequent among the drawn images as in the split.
    """
    rows = sorted(drawn(len(views), most))
    chosen, numbers, spatial = views.take(rows), labels[rows], reference.spatial
    if spatial is not None:
        spatial = replace(spatial, unseen=chosen.spatial, unseen_labels=numbers)
    return replace(reference, unseen=chosen.pool, unseen_labels=numbers, unseen_logits=chosen.logits, spatial=spatial)


def held_out_reference(reference: Reference, distribution: Distribution = FREQUENCY) -> Reference | None:
    """Return a reference made of the held-out images of another, whose own images are then the unseen ones.

    A model that copies its training images has the best distance from these; a distance from held-out images, which no
    training saw, does not reward copies. `ENOUGH` images a feature are required: for n images with D independent
    features of variance 1 the Fréchet distance from their own distribution is about D (D / 4 + 1) / n. At n = 10 D that
    is a fortieth of D, the variance of all features; it falls as 1 / n.

    Returns:
        None if there are fewer than `ENOUGH` of them a feature, or none of a requested class.
    """
    images, labels = reference.unseen_views, reference.unseen_labels
    if images is None or len(images) < ENOUGH * images.pool.shape[1]:
        return None
    if distribution != FREQUENCY and labels is not None:
        counts = count_classes(labels, len(reference.classes))
        if missing(distribution, reference.classes, counts):
            return None
    count = len(images)
    held_out = build_reference(reference.extractor, reference.sha256, [images], count, count, labels, reference.classes)
    return with_held_out(held_out, reference.stored_views, reference.labels, len(reference.stored_views))
