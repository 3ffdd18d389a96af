"""Compute the features of a set of images, and its scores against another set, in the convention of a program."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from darkroom.data.colours import to_rgb
from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics import table
from darkroom.metrics.batches import Views
from darkroom.metrics.frechet import covariance_root
from darkroom.metrics.inception_score import InceptionScore
from darkroom.metrics.kernel import SIZE, kernel_subsets, within
from darkroom.metrics.measure import Metric, Samples
from darkroom.metrics.measure import measure as measure_by
from darkroom.metrics.moments import Moments
from darkroom.metrics.reference import Reference, moments_of
from darkroom.metrics.sample_scores import SPLITS, SUBSETS, score_names
from darkroom.metrics.uncertainty import assign_blocks
from darkroom.models.evaluators.load import Extractor, stream_views
from darkroom.terminal.terminal import with_progress
from darkroom.tools.score.images import Images, Pixels

BLOCKS = 10
LEAST = 2 * BLOCKS  # images


@dataclass(frozen=True)
class Seen(Views):
    """Features of N images; 20 KB per image for Inception.

    sha256: hash of all pixels in their order.
    images: the hash of the pixels of each image in RGB, N.
    """

    sha256: str = ""
    images: tuple[bytes, ...] = ()


def see(images: Images, extractor: Extractor, batch: int, device: torch.device, work: str) -> Seen:
    """Return the features of all images.

    Raises:
        DarkroomError: an image cannot be read, or its features are not finite; the message names it.
    """
    hasher = hashlib.sha256()
    each: list[bytes] = []

    def hashed() -> Iterator[Pixels]:
        for group in with_progress(images.batches(batch), len(images), work):
            hasher.update(group.tobytes())
            for pixels in to_rgb(torch.from_numpy(group)).numpy():
                each.append(hashlib.blake2b(str(pixels.shape).encode() + pixels.tobytes(), digest_size=16).digest())
            yield group

    groups: list[Views] = []
    done = 0
    for group in stream_views(extractor.network, hashed(), batch, device):
        for part in group.parts:
            if part is not None and not (finite := part.isfinite().all(dim=1)).all():
                bad = images.name(done + int((~finite).int().argmax()))
                raise DarkroomError(f"the features of {bad} are not finite: the weights of the extractor are damaged.")
        groups.append(group)
        done += len(group)
    whole = Views.joined(groups)
    return Seen(whole.pool, whole.spatial, whole.logits, hasher.hexdigest(), tuple(each))


def measure(samples: Samples, real: Reference | None, metrics: Sequence[Metric]) -> dict[str, float]:
    """Return the scores of `samples` with their standard errors, under the names of the table."""
    return score_names(samples.extractor, measure_by(samples, real, metrics).scores)


def reference_of(
    extractor: str, real: Views | None, pool: Moments | None = None, spatial: Moments | None = None
) -> Reference:
    """Return the reference of samples: features of images, published statistics instead, or both.

    `pool` are statistics of the features in place of those of `real`, `spatial` those of sFID.
    """
    features = real or Views(torch.zeros(0))
    reference = _reference(extractor, pool or moments_of(features.pool), features.pool)
    if spatial is None and features.spatial is not None:
        spatial = moments_of(features.spatial)
    return reference if spatial is None else replace(reference, spatial=_reference(extractor, spatial, torch.zeros(0)))


def _reference(extractor: str, moments: Moments, features: Tensor) -> Reference:
    kernel = within(features) if len(features) else None
    root = covariance_root(moments.cov)
    return Reference(extractor, "", moments.count, moments.mean, moments.cov, root, features, kernel)


def noise_floor(
    extractor: str, samples: Views, real: Views, metrics: Sequence[Metric]
) -> dict[str, dict[str, float]] | None:
    """Return the scores of real images and of the same number of `samples` under equal conditions, each with both `n`.

    Two disjoint draws of the reference: as many images as there are samples, at most half, and the others. The first
    draw and a draw of as many samples are scored against the others. Coverage, recall and plain Fréchet distances
    depend on both numbers, so they compare only here, and not with the scores of all samples against all real images.

    None if there are too few images.
    """
    count = min(len(samples), len(real) // 2)
    if count < LEAST:
        return None
    order = torch.tensor(drawn(len(real)))
    others = real.take(order[count:])
    reference = reference_of(extractor, others)
    sets = {"real": real.take(order[:count]), "samples": samples.take(torch.tensor(sorted(drawn(len(samples), count))))}
    return {
        name: measure(Samples(extractor, one, BLOCKS), reference, metrics) | {"n": count, "n_reference": len(others)}
        for name, one in sets.items()
    }


_SPLITS, _SPLIT_SIZE, _SEED = 10, 5000, 2020


class SubsetsMetric:
    """KID as it is published, from random subsets of 1,000 images of Inception's features."""

    scores, needs = SUBSETS, ("real",)

    def measure(self, samples: Samples, reference: Reference) -> Mapping[str, float]:
        """Return the mean over the subsets and their spread; empty for other networks, or fewer images."""
        generated, real = samples.features, reference.kid_features
        if samples.extractor != "inception" or min(len(generated), len(real)) < SIZE:
            return {}
        return dict(zip((score.name for score in SUBSETS), kernel_subsets(generated, real), strict=True))


@dataclass(frozen=True)
class SplitsMetric:
    """The Inception Score as it is published, the mean over splits of the images.

    deal: how images are dealt out: at random, as torch-fidelity draws them, or by 5,000 in their order.
    """

    deal: str
    scores, needs = SPLITS, ("logits",)

    def measure(self, samples: Samples, reference: object) -> Mapping[str, float]:
        """Return the mean and, where there are several splits, its standard error."""
        logits = samples.views.logits
        assert logits is not None  # of `needs`
        split = self.split(len(logits))
        sums = InceptionScore(logits.shape[1], int(split.max()) + 1)
        sums.update(logits, split)
        mean, error = sums.splits()
        return {"inception_score_splits": mean} | ({"inception_score_splits_se": error} if split.max() else {})

    def split(self, count: int) -> Tensor:
        """Return the split of each of `count` images, (count,) int64."""
        if self.deal == "random":
            return assign_blocks(count, _SPLITS)
        if self.deal == "in order":
            return torch.arange(count) // _SPLIT_SIZE
        order = np.random.RandomState(_SEED).permutation(count)
        split = torch.empty(count, dtype=torch.int64)
        for number in range(_SPLITS):
            split[order[number * count // _SPLITS : (number + 1) * count // _SPLITS]] = number
        return split


@dataclass(frozen=True)
class Convention:
    """The scores of a program, and how it computes them.

    name: name of the program.
    text: description for the card.
    pillow: whether Inception sees images resized by Pillow, and not as in TensorFlow 1.
    splits: see `SplitsMetric`.
    subsets: whether it publishes the kernel distance of random subsets.
    """

    name: str
    text: str
    pillow: bool = False
    splits: str = "random"
    subsets: bool = False

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics of the table, and those that the program publishes."""
        subsets = (SubsetsMetric(),) if self.subsets else ()
        return (*table.FEATURE_METRICS, *table.SAMPLE_METRICS, SplitsMetric(self.splits), *subsets)


_CONVENTIONS = (
    Convention("darkroom", "every pair counts once, splits at random"),
    Convention(
        "torch-fidelity",
        "torch-fidelity's: TensorFlow 1's resize, 100 subsets of 1,000 for KID, splits as it draws them, seed 2020",
        splits="torch-fidelity",
        subsets=True,
    ),
    Convention(
        "clean-fid",
        "clean-fid's: Pillow's bicubic resize in float32, 100 subsets of 1,000 for KID, drawn by a seed where it draws "
        "them anew",
        pillow=True,
        subsets=True,
    ),
    Convention(
        "adm",
        "ADM's evaluator's: TensorFlow 1's resize, splits of 5,000 images in their order, reference statistics of the "
        ".npz where it has them, its images for precision and recall",
        splits="in order",
    ),
    Convention(
        "edm",
        "EDM's: TensorFlow 1's resize, reference statistics `mu` and `sigma` of the .npz; it publishes FID alone",
    ),
    Convention("dit", "DiT's: ADM's evaluator on 50,000 samples in an .npz", splits="in order"),
)
CONVENTIONS = {each.name: each for each in _CONVENTIONS}
