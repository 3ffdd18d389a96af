"""What a score compares with: statistics and features of real images, seen through one extractor."""

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
from darkroom.errors import DarkroomError
from darkroom.metrics.frechet import covariance_root, frechet_jackknife
from darkroom.metrics.kernel import kernel_jackknife, within
from darkroom.metrics.matching import (
    BALANCED,
    FREQUENCY,
    NO_CLASS,
    Distribution,
    class_weights,
    count_classes,
    kept_rows,
    shares_of,
)
from darkroom.metrics.moments import BlockMoments, BlockSums, Moments, WeightedMoments
from darkroom.metrics.uncertainty import assign_blocks

_ROWS = 4096  # features in one float64 copy


@dataclass(frozen=True)
class Reference:
    """Real images through one extractor: what `reference_stats` stores, and the scoring stages read.

    extractor: its name: in_domain or inception.
    sha256: of its weights.
    n: images in mean and cov.
    mean, cov, root: (D,), (D, D) and (D, D) float64; cov is unbiased, root is cov^½.
    kid_features: (K, D) float32, of drawn images, K <= n or a few more of rare classes.
    kid_within: the real-real term of the kernel distance.
    kid_weights: of kid_features, (K,) float64 of sum 1; None: all have the same.
    classes: names, by number.
    counts: of the n images, by class, int64.
    labels: class numbers of kid_features, (K,) int64, -1: none.
    balanced: the moments with every class as frequent as another; None: as they are.
    unseen, unseen_labels: features (H, D) and class numbers (H,) of drawn images of the held-out split.
    """

    extractor: str
    sha256: str
    n: int
    mean: Tensor
    cov: Tensor
    root: Tensor
    kid_features: Tensor
    kid_within: float
    kid_weights: Tensor | None = None
    classes: tuple[str, ...] = ()
    counts: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    balanced: Moments | None = None
    unseen: Tensor | None = None
    unseen_labels: Tensor | None = None

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
            kid_within=within(self.kid_features, weights=weights),
            kid_weights=weights,
        )

    def save(self, folder: Path) -> Path:
        """Write `folder/{extractor}.safetensors` and return its path. Equal references give equal bytes."""
        path = folder / f"{self.extractor}.safetensors"
        tensors: dict[str, Tensor | None] = {
            "n": torch.tensor(self.n),
            "kid_within": torch.tensor(self.kid_within, dtype=torch.float64),
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
        path = folder / f"{extractor}.safetensors"
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
                kid_within=float(found["kid_within"]),
                classes=tuple(metadata["classes"]),
                balanced=balanced,
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
_OPTIONAL = ("kid_weights", "unseen", "unseen_labels")


def build_reference(
    extractor: str,
    sha256: str,
    batches: Iterable[Tensor],
    total: int,
    kid_images: int,
    labels: Tensor | None = None,
    classes: Sequence[str] = (),
) -> Reference:
    """Return the reference of `total` real images whose features come in batches (n, D) float32.

    Memory does not grow with `total`: sums, and the features of min(kid_images, total) images, drawn, in the order in
    which they come, and of eight images of each class at least.

    Args:
        extractor: its name.
        sha256: of its weights.
        batches: the features.
        total: images there are.
        kid_images: those whose features are kept, at most.
        labels: class numbers of all, (total,) int64, -1: none; None: they are of no class.
        classes: their names.

    Raises:
        DarkroomError: fewer than 2 images, or another number than `total`.
    """
    if total < 2:
        raise DarkroomError(
            f"a reference needs at least 2 images, not {total}: choose another `reference_stats.split`."
        )
    numbers = torch.full((total,), NO_CLASS) if labels is None else labels
    counts = count_classes(numbers, len(classes))
    rows = torch.tensor(kept_rows(total, kid_images, numbers))
    equal = len(set(counts[counts > 0].tolist())) < 2 and not (numbers < 0).any()
    balance = None if equal or not counts.any() else class_weights(numbers, shares_of(BALANCED, classes, counts))
    sums: BlockMoments | None = None
    weighted: WeightedMoments | None = None
    kept: list[Tensor] = []
    seen = 0
    for features in batches:
        features = features.cpu()
        if sums is None:
            sums, weighted = BlockMoments(features.shape[1]), WeightedMoments(features.shape[1])
        sums.update(features, torch.zeros(len(features), dtype=torch.int64))
        if balance is not None and weighted is not None:
            weighted.update(features, balance[seen : seen + len(features)])
        kept.append(features[rows[(rows >= seen) & (rows < seen + len(features))] - seen])
        seen += len(features)
    if seen != total or sums is None:
        raise DarkroomError(f"{seen} images came for the reference, and {total} were announced by the index.")
    moments, features = sums.compute().all(), torch.cat(kept)
    # Those of no class count as one more: a draw that was filled up with rare classes is weighted back.
    own = torch.where(numbers < 0, len(classes), numbers)
    fractions = torch.bincount(own, minlength=len(classes) + 1).double() / total
    weights = None if len(rows) == total or labels is None else class_weights(own[rows], fractions)
    return Reference(
        extractor=extractor,
        sha256=sha256,
        n=moments.count,
        mean=moments.mean,
        cov=moments.cov,
        root=covariance_root(moments.cov),
        kid_features=features,
        kid_within=within(features, weights=weights),
        kid_weights=weights,
        classes=tuple(classes),
        counts=counts,
        labels=numbers[rows],
        balanced=weighted.compute() if weighted is not None and weighted.count > 1 else None,
    )


def _sums(features: Tensor, block: Tensor, blocks: int) -> BlockSums:
    metric = BlockMoments(features.shape[1], blocks)
    for rows, index in zip(features.split(_ROWS), block.split(_ROWS), strict=True):
        metric.update(rows, index)
    return metric.compute()


def moments_of(features: Tensor) -> Moments:
    """Return the moments of features (N, D) float32, N at least 2, in float64."""
    features = features.cpu()
    return _sums(features, torch.zeros(len(features), dtype=torch.int64), 1).all()


def distances(features: Tensor, reference: Reference, blocks: int, classes: Tensor | None = None) -> dict[str, float]:
    """Return the distances of generated images from a reference, from their features (N, D) float32.

    Args:
        features: of the generated images.
        reference: `matched` to the distribution of classes that they were asked to have.
        blocks: of the jackknife.
        classes: class number of each image, (N,) int64, which are spread evenly over the blocks; None: of no class.

    Returns:
        `fd`: Fréchet distance at exactly N, comparable with others at that N; `fd_debiased`: without its bias in 1/N;
        `fd_se`: its standard error; `kid`, `kid_se`: kernel distance, unbiased, and its standard error.

    Raises:
        DarkroomError: too few samples for the blocks, another number of features, values that are not finite.
    """
    features = features.cpu()
    block = assign_blocks(len(features), blocks, classes)
    fd = frechet_jackknife(reference.moments, reference.root, _sums(features, block, blocks))
    kid = kernel_jackknife(reference.kid_features, reference.kid_within, features, block, weights=reference.kid_weights)
    return {
        "fd": fd.value,
        "fd_debiased": fd.debiased,
        "fd_se": fd.se,
        "kid": kid.value,
        "kid_se": kid.se,
    }
