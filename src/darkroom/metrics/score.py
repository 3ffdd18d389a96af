"""What is known of a score by its name, and what a metric of generated images is. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

FEWEST = 4  # blocks of a jackknife: of B blocks the error is itself uncertain by 1 / sqrt(2 (B - 1)), of 4 by 41 %
TOO_FEW = "too few images ({:,.0f})"  # in place of a standard error


def count_blocks(samples: int, blocks: int) -> int:
    """Return into how many blocks samples are divided: fewer where there are fewer than two samples a block.

    1 where these would be too few for a standard error: fewer than `FEWEST`, and than `blocks`.
    """
    possible = min(blocks, samples // 2)
    return possible if possible >= min(blocks, FEWEST) else 1


@dataclass(frozen=True)
class Score:
    """A number in a metrics file: what cards, tables and the page say of it.

    name: in metrics/*.json; its standard error is NAME_se.
    meaning: what it says to a reader of the page, and which way is better.
    group: the part of the page that it stands in.
    formula: for its card; empty where it stands in no card.
    error: the formula of its standard error; empty where it has none of its own.
    title: in the page's tables; the name where it is empty.
    higher_is_better: which way is better.
    fraction: whether it is a fraction of n independent images: its standard error then follows.
    paired: whether two revisions measure it on the same images: the error of the difference is then not known.
    evaluator: the network that it alone depends on, by its key in the card; empty: it depends on the whole protocol.
    compared: whether it is a score of the model, and not of real images.
    """

    name: str
    meaning: str
    group: str
    formula: str = ""
    error: str = ""
    title: str = ""
    higher_is_better: bool = False
    fraction: bool = False
    paired: bool = False
    evaluator: str = ""
    compared: bool = True


@dataclass(frozen=True)
class Samples:
    """Generated images, as a metric of them sees them.

    count: how many there are.
    images: yields them in batches, uint8 (n, C, H, W); its argument is what is done with them, for the progress line.
    features: of the in-domain extractor, float32 (count, D), on the CPU.
    classifier: the in-domain extractor; `classifier.logits(features)` are those of `classes`.
    classes: the classifier's.
    labels: the class that each image was requested to show; None for an image of no class.
    device: where networks run.
    real: features of the reference images that are kept, float32 (K, D); None: of no in-domain reference.
    real_weights: of these, (K,) float64 of sum 1, where they have another distribution of classes than the samples.
    """

    count: int
    images: Callable[[str], Iterator[NDArray[np.uint8]]]
    features: Tensor
    classifier: Any
    classes: Sequence[str]
    labels: Sequence[str | None]
    device: torch.device
    real: Tensor | None = None
    real_weights: Tensor | None = None


class SampleMetric(Protocol):
    """A metric of generated images: the scores that it may return, and how they are measured."""

    @property
    def scores(self) -> Sequence[Score]:
        """The scores that it may return."""
        ...

    def measure(self, samples: Samples) -> Mapping[str, float]:
        """Return values by the names of `scores`, and their standard errors as NAME_se."""
        ...


NORMAL = 1.96  # standard errors on each side of a 95% interval


def wilson(fraction: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of a fraction of n independent images, valid also at 0 and 1.

    (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n), z = 1.96; Wilson, 1927.
    """
    z2 = NORMAL**2 / n
    middle = fraction + z2 / 2
    reach = NORMAL * math.sqrt(fraction * (1 - fraction) / n + z2 / (4 * n))
    return max(0.0, (middle - reach) / (1 + z2)), min(1.0, (middle + reach) / (1 + z2))


def share_and_error(name: str, fraction: float, n: int) -> dict[str, float]:
    """Return a fraction of n images and its standard error, which is not 0 at 0 and 1: a quarter of the interval."""
    low, high = wilson(fraction, n)
    return {name: fraction, f"{name}_se": (high - low) / (2 * NORMAL)}
