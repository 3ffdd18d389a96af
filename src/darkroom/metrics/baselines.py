"""Baselines of sample scores: the scores of the same number of held-out real images of the same classes."""

from collections.abc import Mapping

from torch import Tensor

from darkroom.metrics.matching import FREQUENCY, Distribution, alike_rows, missing
from darkroom.metrics.measure import Samples, measure
from darkroom.metrics.reference import Reference
from darkroom.metrics.sample_scores import score_names
from darkroom.metrics.score import count_blocks
from darkroom.metrics.table import metrics_of

_OF_NUMBER = ("recall", "coverage")  # they depend on the number of samples


def noise_floor(
    reference: Reference, matched: Reference, distribution: Distribution, requested: Tensor, blocks: int
) -> dict[str, float]:
    """Return the scores of as many held-out real images of the samples' classes, and `n`, their number.

    Args:
        reference: with the features of held-out images.
        matched: the reference of the samples.
        distribution: that of the requested classes.
        requested: class number of each sample, (N,) int64, -1: none.
        blocks: blocks of the jackknife, at most: see `count_blocks`.

    Returns:
        the scores of every metric that needs features alone, with `n`, which is below N if there are too few images;
        empty if these are too few for a standard error. With fewer images than samples, recall and coverage are left
        out: they would be lower, so the samples would seem better.
    """
    unseen, numbers = reference.unseen_views, reference.unseen_labels
    if unseen is None or numbers is None:
        return {}
    rows, alike = alike_rows(numbers, requested, distribution)
    if count_blocks(len(rows), blocks) < 2:
        return {}
    # If the classes are random too, the error includes theirs: blocks of any images.
    unseen_samples = Samples(matched.extractor, unseen.take(rows), blocks, numbers[rows] if alike else None)
    scores = measure(unseen_samples, matched, metrics_of(matched.extractor)).scores
    fewer = _OF_NUMBER if len(rows) < len(requested) else ()
    return {"n": len(rows), **{name: value for name, value in scores.items() if name.removesuffix("_se") not in fewer}}


def notes_on_classes(
    reference: Reference, distribution: Distribution, samples: int, floor: Mapping[str, float], split: str
) -> list[str]:
    """Return a card's notes on classes without real images, and on a noise floor of fewer images.

    `reference` is as stored, `samples` the number of samples, `split` the split of the held-out images.
    """
    notes, extractor = [], reference.extractor
    if distribution != FREQUENCY:
        if lacking := missing(distribution, reference.classes, reference.counts):
            notes.append(f"the reference has no images of the requested classes {', '.join(lacking)}")
        if not isinstance(distribution, str) and len(reference.kid_features) < reference.n:
            stored = len(reference.kid_features)
            notes.append(f"{extractor}: the reference is weighted from {stored:,} of {reference.n:,} images")
    if not floor:
        return [*notes, f"no noise floor: the split {split} has too few images of the requested classes"]
    debiased, plain = score_names(extractor, {"fd_debiased": 0.0, "fd": 0.0})
    if floor["n"] < samples:
        notes.append(
            f"{extractor}: the noise floor uses only {floor['n']:,.0f} real images, because the split has no more of "
            f"the requested classes: compare {debiased} with it, not {plain}"
            + ("; recall and coverage have no floor" if extractor == "in_domain" else "")
        )
    return notes
