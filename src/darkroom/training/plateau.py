"""How a held-out score falls with the images seen.

Learning curves are near to power laws, v = c n^-a (Kaplan et al., 2020, arXiv 2001.08361), so a line through log v
over log n says what more images bring at any length: 1 - 2^-a of the score for twice the images. The exponent falls on
the way, as the score nears what it cannot get below; so only the last half of the images is looked at.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]  # images seen, in order, and a score of which less is better

# Scores of which more is better, and 1 is perfect: what is missing to 1 is judged.
_RISING = ("accuracy", "cosine", "image_to_text_r1")
# What judges a training as a person reads it, less being better.
TITLES = {
    "val/loss": "The validation loss",
    "val/reconstruction": "The reconstruction loss of the validation images",
    "val/accuracy": "The error rate on the validation images",
    "eval/image_to_text_r1": "The fraction of validation images whose caption is not found",
    "eval/fd_debiased": "The Fréchet distance from training images",
    "eval/cosine": "What the cosine lacks to 1",
}


@dataclass(frozen=True)
class Trend:
    """The line log v = c - exponent * log n, and the standard error of its slope, 0 through two points."""

    exponent: float
    error: float

    @property
    def of_doubling(self) -> float:
        """The fraction of the score that twice the images take away."""
        return 1 - 2**-self.exponent

    def of_more(self, images: float, seen: float) -> float:
        """Return the fraction of the score that some more images take away."""
        return 1 - (1 + images / seen) ** -self.exponent


def trend(points: Points) -> Trend:
    """Return the least squares line through log v over log n, of two points with v > 0 at least."""
    x, y = [math.log(seen) for seen, _ in points], [math.log(value) for _, value in points]
    at, level = sum(x) / len(x), sum(y) / len(y)
    spread = sum((each - at) ** 2 for each in x)
    slope = sum((one - at) * (other - level) for one, other in zip(x, y, strict=True)) / spread
    rest = sum((other - level - slope * (one - at)) ** 2 for one, other in zip(x, y, strict=True))
    return Trend(-slope, math.sqrt(rest / max(1, len(x) - 2) / spread))


def exponent_of(fraction: float) -> float:
    """Return the exponent with which twice the images take this fraction of a score away."""
    return -math.log2(1 - fraction)


def last_half(points: Points) -> Points:
    """Return the points from half of the last one's images on."""
    return [point for point in points if 2 * point[0] >= points[-1][0]]


def rest_of(judge: str, points: Points) -> Points:
    """Return points of a score as those of one of which less is better: of one that rises to 1 what it lacks."""
    rises = judge.rpartition("/")[2] in _RISING
    return [(seen, 1 - value if rises else value) for seen, value in points]


def scoring_keys(stage: str) -> str:
    """Return the keys by which train_generator or train_decoder scores the images that it makes, for a sentence."""
    key = f"`{stage}.evaluate.every` above 0"
    if stage == "train_generator":
        return f"{key}, `.extractor` to models/extractor and `.reference` to data/reference"
    return f"{key} and `.extractor` to models/extractor"
