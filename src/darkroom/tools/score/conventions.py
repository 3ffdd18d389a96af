"""What programs do differently with the same images and the same network."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from darkroom.metrics import table
from darkroom.metrics.inception_score import InceptionScore
from darkroom.metrics.kernel import SIZE, kernel_subsets
from darkroom.metrics.measure import Metric, Samples
from darkroom.metrics.reference import Reference
from darkroom.metrics.sample_scores import SPLITS, SUBSETS
from darkroom.metrics.uncertainty import assign_blocks

_SPLITS, _SPLIT_SIZE, _SEED = 10, 5000, 2020


class SubsetsMetric:
    """KID as it is published, from random subsets of 1,000 images of Inception's features."""

    scores, needs = SUBSETS, ("real",)

    def measure(self, samples: Samples, reference: Reference) -> Mapping[str, float]:
        """Return the mean over the subsets and their spread; nothing of another network, or of fewer images."""
        made, real = samples.features, reference.kid_features
        if samples.extractor != "inception" or min(len(made), len(real)) < SIZE:
            return {}
        return dict(zip((score.name for score in SUBSETS), kernel_subsets(made, real), strict=True))


@dataclass(frozen=True)
class SplitsMetric:
    """The Inception Score as it is published, the mean over splits of the images.

    deal: how images are dealt out: at random, as torch-fidelity draws them, or by 5,000 in their order.
    """

    deal: str
    scores, needs = SPLITS, ("logits",)

    def measure(self, samples: Samples, reference: object) -> Mapping[str, float]:
        """Return the mean and, where there are several splits, its standard error."""
        logits = samples.seen.logits
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
    """A program's way.

    name: of the program.
    pillow: whether Inception sees images resized by Pillow, and not as in TensorFlow 1.
    splits: see `SplitsMetric`.
    subsets: whether the kernel distance of random subsets is published by it.
    text: for the card.
    """

    name: str
    pillow: bool
    splits: str
    subsets: bool
    text: str

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What is measured: all metrics of the table, and those that the program publishes."""
        subsets = (SubsetsMetric(),) if self.subsets else ()
        return (*table.FEATURE_METRICS, *table.SAMPLE_METRICS, SplitsMetric(self.splits), *subsets)


CONVENTIONS = {
    "darkroom": Convention("darkroom", False, "random", False, "every pair counts once, splits at random"),
    "torch-fidelity": Convention(
        "torch-fidelity",
        False,
        "torch-fidelity",
        True,
        "torch-fidelity's: TensorFlow 1's resize, 100 subsets of 1,000 for KID, splits as it draws them, seed 2020",
    ),
    "clean-fid": Convention(
        "clean-fid",
        True,
        "random",
        True,
        "clean-fid's: Pillow's bicubic resize in float32, 100 subsets of 1,000 for KID, drawn by a seed where it draws "
        "them anew",
    ),
    "adm": Convention(
        "adm",
        False,
        "in order",
        False,
        "ADM's evaluator's: TensorFlow 1's resize, splits of 5,000 images in their order, reference statistics of the "
        ".npz where it has them, its images for precision and recall",
    ),
}
