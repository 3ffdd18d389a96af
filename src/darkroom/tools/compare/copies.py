"""The warning of `darkroom compare` where a distance improves while copies of training images become more."""

import math
from collections.abc import Iterable, Mapping

from darkroom.metrics.sample_scores import DISTANCES, SPACES
from darkroom.report.numbers import fixed, percent
from darkroom.tools.compare.revisions import Results
from darkroom.tools.compare.verdicts import THRESHOLD, Row

_DISTANCES = {score.name for score in DISTANCES}
_FALL = THRESHOLD * math.sqrt(2)  # of C_T, each of whose values has a standard deviation of 1
_NEAR = -3.0  # C_T below which images lie nearer to training images than held-out ones do


def more_copies(old: Results, new: Results, rows: Iterable[Row]) -> str:
    """Return a line for each file whose distance is better in one revision, which copies more; empty for none.

    More copies: a share that is higher by two standard errors, or a C_T below -3 that is lower by two of them.

    Args:
        old: a revision.
        new: another.
        rows: of `compare`, with their verdicts.
    """
    better: dict[str, dict[bool, list[str]]] = {}
    for row in rows:
        word = row.verdict.partition(" ")[0].rstrip(",")
        if row.name in _DISTANCES and word in ("better", "worse"):
            better.setdefault(row.file, {}).setdefault(word == "better", []).append(row.name)
    lines = []
    for file, found in better.items():
        for newer, names in found.items():
            one, other = (new, old) if newer else (old, new)
            if copied := _more(other.metrics[file], one.metrics[file], other.name, one.name):
                lines.append(
                    f"\nWarning: {file}.{names[0]} is better in {one.name}, which copies more training images: "
                    f"{'; '.join(copied)}. A copier has the best distance from what it was trained on: look at the "
                    "pairs on the page (Memorisation)."
                )
    return "".join(lines)


def _more(less: Mapping[str, float], more: Mapping[str, float], lesser: str, greater: str) -> list[str]:
    """Return the numbers of copies that are higher in `more`, with those of both."""
    found = []
    for space in SPACES:
        name = f"copies_{space}"
        if name in less and name in more:
            error = math.hypot(less[f"{name}_se"], more[f"{name}_se"])
            if more[name] - less[name] > THRESHOLD * error:
                found.append(f"{name} {percent(more[name])} in {greater}, {percent(less[name])} in {lesser}")
        name = f"ct_{space}"
        if name in less and name in more and more[name] < min(_NEAR, less[name] - _FALL):
            found.append(f"{name} {fixed(more[name], 1)} in {greater}, {fixed(less[name], 1)} in {lesser}")
    return found
