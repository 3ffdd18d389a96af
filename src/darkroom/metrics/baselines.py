"""What stands beside the scores of some samples: what as many held-out real images of their classes score."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from darkroom.metrics.batches import Views
from darkroom.metrics.matching import FREQUENCY, Distribution, alike_rows, count_classes, left_out, missing
from darkroom.metrics.measure import Samples, measure
from darkroom.metrics.reference import Reference
from darkroom.metrics.sample_scores import listed, score_names
from darkroom.metrics.score import count_blocks
from darkroom.metrics.table import metrics_of

_OF_NUMBER = ("recall", "coverage")  # how many real images are reached depends on how many reach for them


@dataclass(frozen=True)
class Floor:
    """What held-out real images score, and where classes had to be left out, what the samples of the others score.

    scores: of the held-out images, and `n`, how many they are; empty where there are too few.
    left_out: classes of the samples that have too few held-out images.
    fraction: of the samples, that are of these.
    samples: scores of the samples of the other classes against the reference of these, and `n`; empty: none is left
        out.
    """

    scores: dict[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    fraction: float = 0.0
    samples: dict[str, float] = field(default_factory=dict)


def noise_floor(
    reference: Reference, matched: Reference, distribution: Distribution, wanted: Tensor, blocks: int, seen: Views
) -> Floor:
    """Return the noise floor of some samples: what as many held-out real images of their classes score.

    Where held-out images of these classes would be fewer than two a block, floor and samples are compared without the
    rarest classes, with the reference weighted to the others: see `left_out`.

    Args:
        reference: with the features of held-out images.
        matched: what the samples are compared with.
        distribution: of classes that they were asked to have.
        wanted: class number of each sample, (N,) int64, -1: none.
        blocks: of the jackknife, at most: see `count_blocks`.
        seen: features of the samples.
    """
    numbers = reference.unseen_labels
    without = [] if numbers is None else left_out(numbers, wanted, distribution, 2 * blocks)
    if not without:
        return Floor(distances_of_unseen(reference, matched, distribution, wanted, blocks))
    kept = ~torch.isin(wanted, torch.tensor(without))
    counts = count_classes(wanted[kept], len(reference.classes))
    asked = {name: count for name, count in zip(reference.classes, counts.tolist(), strict=True) if count}
    if count_classes(reference.labels, len(reference.classes))[counts > 0].sum() < 2:  # none to compare with
        return Floor()
    of_others = reference.matched(asked)
    scores = distances_of_unseen(reference, of_others, asked, wanted[kept], blocks)
    if not scores:
        return Floor()
    count = int(kept.sum())
    samples = _scored(seen.take(kept), of_others, blocks, wanted[kept])
    names = tuple(reference.classes[number] for number in sorted(without))
    alike = {name: value for name, value in samples.items() if name in scores}
    return Floor(scores, names, 1 - count / len(wanted), {"n": count, **alike})


def distances_of_unseen(
    reference: Reference, matched: Reference, distribution: Distribution, wanted: Tensor, blocks: int
) -> dict[str, float]:
    """Return what as many held-out real images of the classes of some samples score, and `n`; no class is left out.

    Arguments as of `noise_floor`.

    Returns:
        by every metric that needs features alone, with `n`, which is less than N where there are too few; empty where
        these are too few for a standard error. Without recall and coverage where there are fewer than samples: real
        images are then reached by fewer, and the samples would seem better.
    """
    unseen, numbers = reference.unseen_views, reference.unseen_labels
    if unseen is None or numbers is None:
        return {}
    rows, alike = alike_rows(numbers, wanted, distribution)
    if count_blocks(len(rows), blocks) < 2:
        return {}
    # Of images whose classes are chance the error is that of images and classes: blocks of any images.
    found = _scored(unseen.take(rows), matched, blocks, numbers[rows] if alike else None)
    fewer = _OF_NUMBER if len(rows) < len(wanted) else ()
    return {"n": len(rows), **{name: value for name, value in found.items() if name.removesuffix("_se") not in fewer}}


def _scored(seen: Views, matched: Reference, blocks: int, numbers: Tensor | None) -> dict[str, float]:
    name = matched.extractor
    return measure(Samples(name, seen, blocks, numbers), matched, metrics_of(name)).scores


def notes_on_classes(
    reference: Reference, distribution: Distribution, samples: int, floor: Floor, split: str
) -> list[str]:
    """Return what a card says of classes that real images lack, and of a noise floor of fewer images.

    `reference` is as it is stored, `samples` how many there are, `split` that of the held-out images.
    """
    notes, extractor = [], reference.extractor
    if distribution != FREQUENCY:
        if lacking := missing(distribution, reference.classes, reference.counts):
            notes.append(f"the reference has no image of {', '.join(lacking)}, which the samples were asked to show")
        if not isinstance(distribution, str) and len(reference.kid_features) < reference.n:
            kept = len(reference.kid_features)
            notes.append(f"{extractor}: the reference is weighted from {kept:,} of {reference.n:,} images")
    if not floor.scores:
        return [*notes, f"no noise floor: the split {split} has too few images of the classes of the samples"]
    debiased, plain = score_names(extractor, {"fd_debiased": 0.0, "fd": 0.0})
    if floor.left_out:
        notes.append(
            f"{extractor}: the split {split} has no or too few images of {listed(floor.left_out)}, of which a fraction "
            f"of {floor.fraction:.2g} of the samples is: the noise floor is that of the other classes, of which the "
            f"samples score {debiased} {floor.samples['fd_debiased']:.4g} ± {floor.samples['fd_se']:.2g}"
        )
    if floor.scores["n"] < floor.samples.get("n", samples):
        notes.append(
            f"{extractor}: the noise floor is that of {floor.scores['n']:,.0f} real images, fewer than the samples, "
            f"for the split has no more of their classes: compare {debiased} with it, and not {plain}"
            + ("; recall and coverage have none" if extractor == "in_domain" else "")
        )
    return notes


def floor_baselines(by_extractor: Mapping[str, Mapping[str, Floor]]) -> dict[str, Any]:
    """Return what a card says of noise floors: scores by split and extractor, and of splits without classes `left_out`.

    The floors are given by extractor, and by the split of the real images that are scored: held_out, train.
    """
    found: dict[str, Any] = {}
    without: dict[str, Any] = {}
    for name, floors in by_extractor.items():
        for split, floor in floors.items():
            found.setdefault(split, {})[name] = floor.scores
            if floor.left_out:
                of_others = {"classes": list(floor.left_out), "fraction": floor.fraction, "samples": {}}
                without.setdefault(split, of_others)["samples"][name] = floor.samples
    return found | ({"left_out": without} if without else {})
