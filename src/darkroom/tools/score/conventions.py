"""What programs do differently with the same images and the same network."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from darkroom.metrics.inception_score import InceptionScore
from darkroom.metrics.uncertainty import assign_blocks

_SPLITS, _SPLIT_SIZE, _SEED = 10, 5000, 2020


@dataclass(frozen=True)
class Convention:
    """A program's way.

    name: of the program.
    pillow: whether Inception sees images resized by Pillow, and not as in TensorFlow 1.
    splits: how images are dealt out for the splits of the Inception Score: at random, as torch-fidelity draws them, or
        by 5,000 in their order.
    subsets: whether the kernel distance of random subsets is published by it.
    text: for the card.
    """

    name: str
    pillow: bool
    splits: str
    subsets: bool
    text: str

    def split(self, count: int) -> Tensor:
        """Return the split of each of `count` images, (count,) int64."""
        if self.splits == "random":
            return assign_blocks(count, _SPLITS)
        if self.splits == "in order":
            return torch.arange(count) // _SPLIT_SIZE
        order = np.random.RandomState(_SEED).permutation(count)
        split = torch.empty(count, dtype=torch.int64)
        for number in range(_SPLITS):
            split[order[number * count // _SPLITS : (number + 1) * count // _SPLITS]] = number
        return split

    def inception_score_splits(self, logits: Tensor) -> dict[str, float]:
        """Return the mean Inception Score of splits of logits (N, C); its standard error where there are several."""
        split = self.split(len(logits))
        sums = InceptionScore(logits.shape[1], int(split.max()) + 1)
        sums.update(logits, split)
        mean, error = sums.splits()
        return {"inception_score_splits": mean} | ({"inception_score_splits_se": error} if split.max() else {})


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
