"""The description of a score. Loads no torch."""

import math
from dataclasses import dataclass

FEWEST = 4  # blocks of a jackknife: of B blocks the error is itself uncertain by 1 / sqrt(2 (B - 1)), of 4 by 41 %
TOO_FEW = "too few images ({:,.0f})"  # in place of a standard error


def count_blocks(samples: int, blocks: int) -> int:
    """Return the number of blocks for some samples: at most `blocks`, each of at least two samples.

    1 if these are too few for a standard error: fewer than `FEWEST`, and than `blocks`.
    """
    possible = min(blocks, samples // 2)
    return possible if possible >= min(blocks, FEWEST) else 1


@dataclass(frozen=True)
class Score:
    """A number in a metrics file, with its description in cards, tables and the page.

    name: in metrics/*.json; its standard error is NAME_se.
    meaning: its meaning for a reader of the page, and which direction is better.
    group: its part of the page.
    formula: for its card; empty: it is in no card.
    error: the formula of its standard error; empty: it has none of its own.
    title: in the page's tables; empty: the name.
    higher_is_better: the better direction.
    fraction: whether it is a fraction of n independent images: its standard error then follows.
    paired: whether two revisions measure it on the same images: the error of the difference is then unknown.
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
