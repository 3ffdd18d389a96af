"""The difference of two scores, its standard error, and what to make of it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from darkroom.comparing.revisions import Results

# A difference counts from this many standard errors on: about 95% of pure noise stays below.
THRESHOLD = 2.0
HIGHER_IS_BETTER = {"label_accuracy", "psnr", "ssim"}
NO_CARD = "a card is missing here, `dvc fetch` may bring it"
# Of a card: what is studied, or follows from it. Everything else is protocol, and must be equal.
STUDIED = {"sampler", "formulas", "notes", "seed"}


@dataclass(frozen=True)
class Row:
    """One score in two revisions; an error that is not known is None."""

    name: str
    old: float
    new: float
    old_se: float | None
    new_se: float | None
    verdict: str

    @property
    def difference(self) -> float:
        """New minus old."""
        return self.new - self.old

    @property
    def se(self) -> float | None:
        """Standard error of the difference of independent scores, sqrt(se_old² + se_new²)."""
        if self.old_se is None or self.new_se is None:
            return None
        return math.hypot(self.old_se, self.new_se)


def standard_error(name: str, scores: Mapping[str, float]) -> float | None:
    """Return a score's standard error: as stored, or that of a share, sqrt(p (1 - p) / n), or None."""
    stored = scores.get(f"{name.removesuffix('_debiased')}_se")
    if stored is not None:
        return stored
    if name == "label_accuracy" and scores.get("n"):
        return math.sqrt(scores[name] * (1 - scores[name]) / scores["n"])
    return None


def flat(card: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings under dotted names."""
    for key, value in card.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differing_protocol(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what differs between two cards and is not what is studied: scores that differ in it do not compare."""
    before, after = (dict(flat({k: v for k, v in card.items() if k not in STUDIED})) for card in (old, new))
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def _verdict(name: str, difference: float, se: float | None, protocol: list[str]) -> str:
    if protocol:
        return f"not comparable: {', '.join(protocol)}"
    if difference == 0:
        return "equal"
    better = (difference > 0) == (name in HIGHER_IS_BETTER)
    if se is None:
        return f"{'better' if better else 'worse'}, error not known"
    if abs(difference) < THRESHOLD * se:
        return "within noise"
    return (
        f"{'better' if better else 'worse'} by {abs(difference) / se:.1f} se" if se else "better" if better else "worse"
    )


def compare(old: Results, new: Results) -> list[Row]:
    """Return a row for each score that both revisions hold, in the order of the files."""
    rows = []
    for file in sorted(old.metrics.keys() & new.metrics.keys()):
        before, after = old.metrics[file], new.metrics[file]
        known = file in old.cards and file in new.cards
        protocol = differing_protocol(old.cards[file], new.cards[file]) if known else [NO_CARD]
        for name in sorted(before.keys() & after.keys()):
            if name == "n" or name.endswith("_se"):
                continue
            errors = standard_error(name, before), standard_error(name, after)
            row = Row(f"{file}.{name}", before[name], after[name], *errors, verdict="")
            rows.append(Row(row.name, row.old, row.new, *errors, _verdict(name, row.difference, row.se, protocol)))
    return rows
