"""The difference of two scores, its standard error, and what to make of it; and whether one copies more images."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from darkroom.metrics.copies_scores import SPACES
from darkroom.metrics.distance_scores import DISTANCES
from darkroom.metrics.score import Score
from darkroom.metrics.shares import share_and_error
from darkroom.metrics.table import COUNT, scores
from darkroom.report.numbers import fixed, flat, percent
from darkroom.report.scores import error_of, too_few
from darkroom.tools.compare.revisions import Results

# A difference counts from this many standard errors on: about 95% of pure noise stays below.
THRESHOLD = 2.0
_DISTANCES = {score.name for score in DISTANCES}
_FALL = THRESHOLD * math.sqrt(2)  # of C_T, each of whose values has a standard deviation of 1
_NEAR = -3.0  # C_T below which images lie nearer to training images than held-out ones do
EQUAL = "equal"  # a verdict
JACKKNIFE = 9  # degrees of freedom of the error of one run, of 10 blocks
NO_CARD = "a card is missing"
_COUNTS = {COUNT, "images", "captions"}
OLD_CARD = "an older card of {}: make it again (`dvc repro`)"
# Evaluators of some scores of a file (`Score.evaluator`), which the others do not depend on: by the card's key.
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
    """One score in two revisions; an error that is not known is None.

    differing: what of the two protocols keeps it from being compared.
    between: whether both errors were seen between runs.
    few: why one of them is not known, where its images are too few.
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
        if self.old_se is None or self.new_se is None or (_known(self.name).paired and not self.between):
            return None
        return math.hypot(self.old_se, self.new_se)

    @property
    def threshold(self) -> float:
        """Standard errors from which on a difference counts: of several runs Student's t (Welch, 1947)."""
        if max(self.runs) == 1 or not self.se:
            return THRESHOLD
        from scipy.stats import t

        freedom = [runs - 1 if runs > 1 else JACKKNIFE for runs in self.runs]
        parts = [((each or 0.0) ** 2) ** 2 / n for each, n in zip((self.old_se, self.new_se), freedom, strict=True)]
        return float(t.ppf(0.975, self.se**4 / sum(parts)))


def _known(name: str) -> Score:
    """Return what is known of a score; of one that an old revision holds alone, that lower is better."""
    return scores().get(name, Score(name, "", ""))


def standard_error(name: str, found: Mapping[str, float]) -> float | None:
    """Return a score's standard error: as stored, or that of a fraction, by Wilson's interval, or None."""
    stored = found.get(error_of(name))
    if stored is not None:
        return stored
    if _known(name).fraction and found.get(COUNT):
        return share_and_error(name, found[name], int(found[COUNT]))[f"{name}_se"]
    return None


def differing_protocol(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what differs between the protocols of two cards: scores that differ in it do not compare.

    The distribution of classes is named with both of its values: one of them must be chosen for both.
    """
    before, after = (dict(flat(card["protocol"])) for card in (old, new))
    differing = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    classes = [_classes(card["protocol"].get("classes")) for card in (old, new)]
    if classes[0] == classes[1]:
        return differing
    others = [key for key in differing if key.partition(".")[0] != "classes"]
    return [f"classes ({classes[0]} and {classes[1]})", *others]


def _classes(distribution: object) -> str:
    """Return a distribution of classes in a word."""
    if isinstance(distribution, Mapping):
        return ", ".join(f"{count} of {name}" for name, count in sorted(distribution.items()))
    return str(distribution or "none")


def protocol_of(name: str, file: str, differing: list[str]) -> list[str]:
    """Return of the differing keys of a card those that a score depends on."""
    if file not in EVALUATED:
        return differing
    own = _known(name).evaluator
    return [key for key in differing if EVALUATORS.get(key.partition(".")[0], own) == own]


def _error(of: Results, file: str, name: str) -> float | None:
    """Return the standard error between runs, or within the one that there is."""
    found = of.errors.get(file, {}).get(name)
    return standard_error(name, of.metrics[file]) if found is None else found


def _verdict(row: Row) -> str:
    difference, se = row.difference, row.se
    if row.differing:
        return f"not comparable: {', '.join(row.differing)}"
    if difference == 0:
        return EQUAL
    better = (difference > 0) == _known(row.name).higher_is_better
    if se is None and row.few:
        return row.few
    if not se:
        return f"{'better' if better else 'worse'}, error not known"
    if abs(difference) < row.threshold * se:
        return "within noise"
    return f"{'better' if better else 'worse'} by {abs(difference) / se:.1f} se"


def _of_cards(file: str, old: Results, new: Results) -> list[str]:
    """Return what keeps the scores of a file from being compared; nothing where the protocols agree."""
    cards = [each.cards.get(file) for each in (old, new)]
    if not all(cards):
        return [NO_CARD]
    older = [each.name for each, card in zip((old, new), cards, strict=True) if "protocol" not in (card or {})]
    if older:
        return [OLD_CARD.format(" and ".join(dict.fromkeys(older)))]
    return differing_protocol(*(card or {} for card in cards))


def compare(old: Results, new: Results) -> list[Row]:
    """Return a row for each score that both revisions hold, in the order of the files."""
    rows = []
    for file in sorted(old.metrics.keys() & new.metrics.keys()):
        before, after = old.metrics[file], new.metrics[file]
        protocol = _of_cards(file, old, new)
        for name in sorted(before.keys() & after.keys()):
            if name in _COUNTS or name.endswith("_se") or not _known(name).compared:
                continue
            old_se, new_se = _error(old, file, name), _error(new, file, name)
            seen = [name in each.errors.get(file, {}) for each in (old, new)]
            runs = old.runs if seen[0] else 1, new.runs if seen[1] else 1
            differing = tuple(protocol_of(name, file, protocol))
            few = too_few(name, before) or too_few(name, after)
            row = Row(file, name, before[name], after[name], old_se, new_se, "", all(seen), runs, differing, few)
            rows.append(replace(row, verdict=_verdict(row)))
    return rows


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
