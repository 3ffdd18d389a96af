"""What a score compares with: statistics and features of real images, seen through one extractor."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics.frechet import covariance_root, frechet_jackknife
from darkroom.metrics.kernel import kernel_jackknife, within
from darkroom.metrics.moments import BlockMoments, BlockSums, Moments
from darkroom.metrics.uncertainty import assign_blocks

_ROWS = 4096  # features in one float64 copy


@dataclass(frozen=True)
class Reference:
    """Real images through one extractor: what `reference_stats` stores, and the scoring stages read."""

    extractor: str  # its name: in_domain or inception
    sha256: str  # of its weights
    n: int  # images in mean and cov
    mean: Tensor  # (D,) float64
    cov: Tensor  # (D, D) float64, unbiased
    root: Tensor  # (D, D) float64, cov^½
    kid_features: Tensor  # (K, D) float32, K <= n
    kid_within: float  # the real-real term of the kernel distance

    @property
    def moments(self) -> Moments:
        """Return n, mean and cov as one value."""
        return Moments(self.n, self.mean, self.cov)

    def save(self, folder: Path) -> Path:
        """Write `folder/{extractor}.safetensors` and return its path. Equal references give equal bytes."""
        path = folder / f"{self.extractor}.safetensors"
        tensors = {
            "n": torch.tensor(self.n),
            "mean": self.mean.contiguous(),
            "cov": self.cov.contiguous(),
            "root": self.root.contiguous(),
            "kid_features": self.kid_features.contiguous(),
            "kid_within": torch.tensor(self.kid_within, dtype=torch.float64),
        }
        # One metadata key only: safetensors writes several in an order that differs between processes.
        save_file(tensors, path, metadata={"extractor_sha256": self.sha256})
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
                made_with = (file.metadata() or {}).get("extractor_sha256", "")
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            reference = Reference(
                extractor=extractor,
                sha256=made_with,
                n=int(found["n"]),
                mean=found["mean"],
                cov=found["cov"],
                root=found["root"],
                kid_features=found["kid_features"],
                kid_within=float(found["kid_within"]),
            )
        except (SafetensorError, KeyError) as error:
            raise ArtifactError(f"{path} is damaged ({error}): restore it with `dvc checkout {folder}`.") from error
        if sha256 is not None and made_with != sha256:
            raise ArtifactError(
                f"{path} was made with weights {made_with[:12]}…, and {extractor} now has {sha256[:12]}…: "
                "run reference_stats again (`dvc repro`)."
            )
        return reference


def build_reference(extractor: str, sha256: str, batches: Iterable[Tensor], total: int, kid_images: int) -> Reference:
    """Return the reference of `total` real images whose features come in batches (n, D) float32.

    Memory does not grow with `total`: sums, and the features of min(kid_images, total) images, drawn, in the order in
    which they come.

    Raises:
        DarkroomError: fewer than 2 images, or another number than `total`.
    """
    if total < 2:
        raise DarkroomError(
            f"a reference needs at least 2 images, not {total}: choose another `reference_stats.split`."
        )
    kept = min(kid_images, total)
    rows = torch.tensor(sorted(drawn(total, kept)))
    sums: BlockMoments | None = None
    kid_features: list[Tensor] = []
    seen = 0
    for features in batches:
        features = features.cpu()
        if sums is None:
            sums = BlockMoments(features.shape[1])
        sums.update(features, torch.zeros(len(features), dtype=torch.int64))
        kid_features.append(features[rows[(rows >= seen) & (rows < seen + len(features))] - seen])
        seen += len(features)
    if seen != total or sums is None:
        raise DarkroomError(f"{seen} images came for the reference, and {total} were announced by the index.")
    moments = sums.compute().all()
    features = torch.cat(kid_features)
    return Reference(
        extractor=extractor,
        sha256=sha256,
        n=moments.count,
        mean=moments.mean,
        cov=moments.cov,
        root=covariance_root(moments.cov),
        kid_features=features,
        kid_within=within(features),
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


def distances(features: Tensor, reference: Reference, blocks: int) -> dict[str, float]:
    """Return the distances of generated images from a reference, from their features (N, D) float32.

    Returns:
        `fd`: Fréchet distance at exactly N, comparable with others at that N; `fd_debiased`: without its bias in 1/N;
        `fd_se`: its standard error; `kid`, `kid_se`: kernel distance, unbiased, and its standard error.

    Raises:
        DarkroomError: too few samples for the blocks, another number of features, values that are not finite.
    """
    features = features.cpu()
    block = assign_blocks(len(features), blocks)
    fd = frechet_jackknife(reference.moments, reference.root, _sums(features, block, blocks))
    kid = kernel_jackknife(reference.kid_features, reference.kid_within, features, block)
    return {
        "fd": fd.value,
        "fd_debiased": fd.debiased,
        "fd_se": fd.se,
        "kid": kid.value,
        "kid_se": kid.se,
    }
