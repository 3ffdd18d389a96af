"""The rows of the table of scores."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from darkroom.metrics.sample_scores import ALONE, score_names
from darkroom.metrics.score import TOO_FEW
from darkroom.metrics.table import COUNT
from darkroom.metrics.table import scores as known_scores
from darkroom.report.numbers import Number, number

DEBIASED = {
    "in_domain": "fd_debiased",
    "inception": "fid_debiased",
    "dinov2": "fd_dinov2_debiased",
    "clip": "fd_clip_debiased",
}
DISTANCES = {
    "in_domain": "Fréchet distance",
    "inception": "FID",
    "dinov2": "Fréchet distance",
    "clip": "Fréchet distance",
}


@dataclass(frozen=True)
class Row:
    """A score of this run and, where there is a noise floor, what real images score: unseen ones, and two halves."""

    name: str
    run: Number
    unseen: Number | None = None
    halves: Number | None = None

    @property
    def title(self) -> str:
        """What stands in the table."""
        return title(self.name)

    @property
    def cells(self) -> tuple[Number | None, ...]:
        """The numbers from left to right."""
        return self.run, self.unseen, self.halves


def title(name: str) -> str:
    """Return what a score is called in a table."""
    known = known_scores().get(name)
    return name if known is None else known.title or name


def error_of(name: str) -> str:
    """Return the name of a score's standard error: one for a distance with its bias and without."""
    return f"{name.removesuffix('_debiased')}_se"


def too_few(name: str, scores: Mapping[str, float]) -> str:
    """Return what stands in place of a standard error that so few images do not give; "": it is there, or never is."""
    known = known_scores().get(name.removesuffix("_debiased"))
    if COUNT not in scores or known is None or not known.error or error_of(name) in scores:
        return ""
    return TOO_FEW.format(scores[COUNT])


def unknown(scores: Mapping[str, float]) -> list[str]:
    """Return the names in a metrics file that the page cannot explain: neither scores, nor errors of scores, nor n."""
    known = known_scores()
    errors = {error_of(name) for name in scores if name in known}
    return sorted(name for name in scores if name not in known and name not in errors and name != COUNT)


def value_of(name: str, scores: Mapping[str, float] | None) -> Number | None:
    """Return a score with its error, where it was given."""
    if scores is None or name not in scores:
        return None
    return replace(number(scores[name], scores.get(error_of(name))), few=too_few(name, scores))


def rows(scores: Mapping[str, float], names: Collection[str]) -> list[Row]:
    """Return rows without a noise floor, in the order of the table of scores."""
    return [Row(name, found) for name in known_scores() if name in names and (found := value_of(name, scores))]


def distance_rows(
    extractor: str, scores: Mapping[str, float], unseen: Mapping[str, float], halves: Mapping[str, float]
) -> list[Row]:
    """Return the rows of one extractor's distances, beside them its noise floor.

    Args:
        extractor: in_domain, inception, dinov2 or clip.
        scores: of the run, under the names of its metrics file.
        unseen: of unseen real images, under the names that every extractor's distances have: fd, fd_se, kid, …
        halves: of two halves of the reference, under the same names.
    """
    floor = score_names(extractor, unseen), score_names(extractor, halves)
    names = {*floor[1], *ALONE.get(extractor, ())}
    return [
        Row(name, found, value_of(name, floor[0]), value_of(name, floor[1]))
        for name in known_scores()
        if name in names and (found := value_of(name, scores))
    ]
