"""Compare two scores: their difference, its standard error, and a verdict."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from darkroom.metrics.score import Score, share_and_error
from darkroom.metrics.table import COUNT, scores
from darkroom.report.numbers import flat
from darkroom.report.scores import error_of, too_few
from darkroom.tools.compare.revisions import Results

# Standard errors from which a difference counts: about 95% of pure noise stays below.
THRESHOLD = 2.0
EQUAL = "equal"  # a verdict
JACKKNIFE = 9  # degrees of freedom of the error of one run, of 10 blocks
_COUNTS = {COUNT, "images", "captions"}
# Evaluators that only some scores of a file depend on (`Score.evaluator`), by the card's key.
EVALUATORS = {
    "clip": "clip",
    "clip_is_condition": "clip",
    "diversity": "diversity",
    "lpips": "lpips",
    "scene_reader": "scene_reader",
}
EVALUATED = {"decoder", "generator", "text", "tokenizer_samples"}  # the files


@dataclass(frozen=True)
class Row:
    """One score in two revisions; unknown errors are None.

    differing: the differences of the two protocols that prevent a comparison.
    between: whether both errors are from several runs.
    few: why an error is unknown, if there are too few images.
    """

    file: str
    name: str
    old: float
    new: float
    old_se: float | None
    new_se: float | None
    verdict: str
    between: bool = False
    runs: tuple[int, int] = (1, 1)
    differing: tuple[str, ...] = ()
    few: str = ""

    @property
    def difference(self) -> float:
        """New minus old."""
        return self.new - self.old

    @property
    def se(self) -> float | None:
        """Standard error of the difference of independent scores, sqrt(se_old² + se_new²), or None."""
        if self.old_se is None or self.new_se is None or (known(self.name).paired and not self.between):
            return None
        return math.hypot(self.old_se, self.new_se)

    @property
    def threshold(self) -> float:
        """Standard errors above which a difference counts; for several runs, Student's t (Welch, 1947)."""
        if max(self.runs) == 1 or not self.se:
            return THRESHOLD
        from scipy.stats import t

        freedom = [runs - 1 if runs > 1 else JACKKNIFE for runs in self.runs]
        parts = [((each or 0.0) ** 2) ** 2 / n for each, n in zip((self.old_se, self.new_se), freedom, strict=True)]
        return float(t.ppf(0.975, self.se**4 / sum(parts)))


def known(name: str) -> Score:
    """Return the definition of a score; for unknown scores of old revisions, lower is better."""
    return scores().get(name, Score(name, "", ""))


def standard_error(name: str, values: Mapping[str, float]) -> float | None:
    """Return a score's standard error: as stored, or that of a fraction, by Wilson's interval, or None."""
    stored = values.get(error_of(name))
    if stored is not None:
        return stored
    if known(name).fraction and values.get(COUNT):
        return share_and_error(name, values[name], int(values[COUNT]))[f"{name}_se"]
    return None


def differing_protocol(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences between the protocols of two cards, which make scores incomparable.

    The distribution of classes is named with both of its values: one of them must be chosen for both.
    """
    before, after = (dict(flat(card.get("protocol", {}))) for card in (old, new))
    differing = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    classes = [_classes(card.get("protocol", {}).get("classes")) for card in (old, new)]
    if classes[0] == classes[1]:
        return differing
    others = [key for key in differing if key.partition(".")[0] != "classes"]
    return [f"classes ({classes[0]} and {classes[1]})", *others]


def _classes(distribution: object) -> str:
    if isinstance(distribution, Mapping):
        return ", ".join(f"{count} of {name}" for name, count in sorted(distribution.items()))
    return str(distribution or "none")


def protocol_of(name: str, file: str, differing: list[str]) -> list[str]:
    """Return the differing keys of a card that a score depends on."""
    if file not in EVALUATED:
        return differing
    own = known(name).evaluator
    return [key for key in differing if EVALUATORS.get(key.partition(".")[0], own) == own]


def error(of: Results, file: str, name: str) -> float | None:
    """Return the standard error between runs, or within a single run."""
    error = of.errors.get(file, {}).get(name)
    return standard_error(name, of.metrics[file]) if error is None else error


def _verdict(row: Row) -> str:
    difference, se = row.difference, row.se
    if row.differing:
        return f"not comparable: {', '.join(row.differing)}"
    if difference == 0:
        return EQUAL
    better = (difference > 0) == known(row.name).higher_is_better
    if se is None and row.few:
        return row.few
    if not se:
        return f"{'better' if better else 'worse'}, error unknown"
    if abs(difference) < row.threshold * se:
        return "within noise"
    return f"{'better' if better else 'worse'} by {abs(difference) / se:.1f} se"


def compare(old: Results, new: Results) -> list[Row]:
    """Return a row for each score in both revisions, in the order of the files."""
    rows = []
    for file in sorted(old.metrics.keys() & new.metrics.keys()):
        before, after = old.metrics[file], new.metrics[file]
        card, other = old.cards.get(file), new.cards.get(file)
        protocol = differing_protocol(card, other) if card and other else ["a card is missing"]
        for name in sorted(before.keys() & after.keys()):
            if name in _COUNTS or name.endswith("_se") or not known(name).compared:
                continue
            old_se, new_se = error(old, file, name), error(new, file, name)
            between = [name in each.errors.get(file, {}) for each in (old, new)]
            runs = old.runs if between[0] else 1, new.runs if between[1] else 1
            differing = tuple(protocol_of(name, file, protocol))
            few = too_few(name, before) or too_few(name, after)
            row = Row(file, name, before[name], after[name], old_se, new_se, "", all(between), runs, differing, few)
            rows.append(replace(row, verdict=_verdict(row)))
    return rows
