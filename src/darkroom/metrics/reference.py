"""What a score compares with: statistics and features of real images, seen through one extractor."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.errors import DarkroomError
from darkroom.metrics.batches import Views
from darkroom.metrics.frechet import covariance_root, frechet_distance, frechet_of_two
from darkroom.metrics.kernel import within
from darkroom.metrics.matching import BALANCED, FREQUENCY, Distribution, class_weights, count_classes, shares_of
from darkroom.metrics.moments import Moments, WeightedMoments, block_sums, require_finite

_ROWS = 4096  # features in one float64 copy


@dataclass(frozen=True)
class Reference:
    """Real images through one extractor: what `reference_stats` stores, and the scoring stages read.

    extractor: its name: in_domain, inception, …
    sha256: of its weights.
    n: images in mean and cov.
    mean, cov, root: (D,), (D, D) and (D, D) float64; cov is unbiased, root is cov^½.
    kid_features: (K, D) float32, of drawn images, K <= n or a few more of rare classes.
    kid_within: the real-real term of the kernel distance; None: in these features there is none.
    kid_weights: of kid_features, (K,) float64 of sum 1; None: all have the same.
    classes: names, by number.
    counts: of the n images, by class, int64.
    labels: class numbers of kid_features, (K,) int64, -1: none.
    balanced: the moments with every class as frequent as another; None: as they are.
    unseen, unseen_labels: features (H, D) and class numbers (H,) of drawn images of the held-out split.
    unseen_logits: of Inception, the logits of the same held-out images, (H, 1008) float32.
    spatial: of Inception, the same images in the features of sFID.
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
    def kept(self) -> Views:
        """Return the kept features, in the order of `labels`."""
        return Views(self.kid_features, None if self.spatial is None else self.spatial.kid_features)

    @property
    def unseen_views(self) -> Views | None:
        """Return what is known of the held-out images, in the order of `unseen_labels`; None: there are none."""
        if self.unseen is None:
            return None
        return Views(self.unseen, None if self.spatial is None else self.spatial.unseen, self.unseen_logits)

    @property
    def moments(self) -> Moments:
        """Return n, mean and cov as one value."""
        return Moments(self.n, self.mean, self.cov)

    def matched(self, distribution: Distribution) -> "Reference":
        """Return the same images weighted to a distribution of classes; by frequency they are as they are.

        Equally many of each class: the moments are those of all n images, weighted, and so `fd` is as exact as by
        frequency. Of numbers by class they are those of the kept features.

        Raises:
            DarkroomError: no image is of any of the classes.
        """
        if distribution == FREQUENCY or (distribution == BALANCED and self.balanced is None):
            return self
        if not len(self.labels) or not shares_of(distribution, self.classes, self.counts).isfinite().all():
            raise DarkroomError(
                f"the reference ({self.n:,} images) holds no image of a class that the samples were asked to show: "
                "sample by frequency (`sample_generator.common.labels`), or choose another `reference_stats.split`."
            )
        kept = count_classes(self.labels, len(self.classes))
        weights = class_weights(self.labels, shares_of(distribution, self.classes, kept))
        found = self.balanced
        if found is None or distribution != BALANCED:
            sums = WeightedMoments(self.kid_features.shape[1])
            for rows, own in zip(self.kid_features.split(_ROWS), weights.split(_ROWS), strict=True):
                sums.update(rows, own)
            found = sums.compute()
        return replace(
            self,
            n=found.count,
            mean=found.mean,
            cov=found.cov,
            root=covariance_root(found.cov),
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
                f"{path} is missing: name `{extractor}` under `reference_stats.extractors` in params.yaml, "
                "and run reference_stats (`dvc repro`)."
            )
        try:
            with safe_open(path, framework="pt") as file:
                metadata = json.loads((file.metadata() or {})["reference"])
                found: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            made_with, balanced = metadata["extractor_sha256"], None
            if "balanced_n" in found:
                balanced = Moments(int(found["balanced_n"]), found["balanced_mean"], found["balanced_cov"])
            reference = Reference(
                extractor=extractor,
                sha256=made_with,
                n=int(found["n"]),
                kid_within=float(found["kid_within"]) if "kid_within" in found else None,
                classes=tuple(metadata["classes"]),
                balanced=balanced,
                spatial=Reference.load(folder, of_spatial, sha256) if (folder / _file(of_spatial)).is_file() else None,
                **{name: found[name] for name in _TENSORS},
                **{name: found.get(name) for name in _OPTIONAL},  # type: ignore[arg-type]
            )
        except (SafetensorError, KeyError, ValueError) as error:
            raise ArtifactError(f"{path} is damaged ({error}): restore it with `dvc checkout {folder}`.") from error
        if sha256 is not None and made_with != sha256:
            raise ArtifactError(
                f"{path} was made with weights {made_with[:12]}…, and {extractor} now has {sha256[:12]}…: "
                "run reference_stats again (`dvc repro`)."
            )
        return reference


_TENSORS = ("mean", "cov", "root", "kid_features", "counts", "labels")
_OPTIONAL = ("kid_weights", "unseen", "unseen_labels", "unseen_logits")


def _file(extractor: str) -> str:
    return f"{extractor}.safetensors"


def spatial_name(extractor: str) -> str:
    """Return what the reference in the features of sFID is called, beside the extractor's own."""
    return f"{extractor}_spatial"


def moments_of(features: Tensor) -> Moments:
    """Return the moments of features (N, D) float32, N at least 2, in float64."""
    features = features.cpu()
    return block_sums(features, torch.zeros(len(features), dtype=torch.int64)).all()


def frechet_between(features: Tensor, others: Tensor) -> float:
    """Return the Fréchet distance of two sets of features, (N, D) and (M, D) float32; in the small form where few.

    Raises:
        DarkroomError: fewer than 2 images in a set, or values that are not finite.
    """
    for rows in (features, others):
        require_finite(rows)
    if max(len(features), len(others)) <= features.shape[1]:
        return frechet_of_two(features, others)
    reference = moments_of(others)
    return frechet_distance(reference, covariance_root(reference.cov), moments_of(features))
