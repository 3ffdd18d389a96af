"""What stands beside the scores of some samples: what as many held-out real images of their classes score.

A label accuracy means little alone. Beside it stand what held-out real images of the same classes get, Σ_c p_c a_c with
p_c the fraction of class c among the samples and a_c the evaluator's accuracy on real images of it, and what a constant
answer gets, max_c p_c.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from darkroom.metrics.batches import Views
from darkroom.metrics.labels import SURE, Classifier
from darkroom.metrics.manifold import LEAST, manifold
from darkroom.metrics.matching import (
    FREQUENCY,
    NO_CLASS,
    Distribution,
    alike_rows,
    class_numbers,
    count_classes,
    left_out,
    missing,
)
from darkroom.metrics.reference import Reference, distances, scores_alone
from darkroom.metrics.sample_scores import listed, score_names
from darkroom.metrics.score import count_blocks

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

    Args:
        reference: with the features of held-out images.
        matched: what the samples are compared with.
        distribution: of classes that they were asked to have.
        wanted: class number of each sample, (N,) int64, -1: none.
        blocks: of the jackknife, at most: see `count_blocks`.

    Returns:
        as `distances` and `scores_alone`, with `n`, which is less than N where there are too few; empty where these are
        too few for a standard error.
        In the in-domain extractor's features also as `manifold`, from 6 images on, but for recall and coverage where
        there are fewer than samples: real images are then reached by fewer, and the samples would seem better.
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
    found = distances(seen, matched, blocks, numbers) | scores_alone(seen, matched, blocks)
    if matched.extractor == "in_domain" and min(len(seen), len(matched.kid_features)) >= LEAST:
        found |= manifold(seen.pool, matched.kid_features, weights=matched.kid_weights)
    return found


def notes_on_classes(
    reference: Reference, distribution: Distribution, samples: int, floor: Floor, split: str
) -> list[str]:
    """Return what a card says of classes that real images lack, and of a noise floor of fewer images.

    Args:
        reference: as it is stored.
        distribution: of classes that the samples were asked to have.
        samples: how many there are.
        floor: of `noise_floor`.
        split: of the held-out images.
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
    if floor.left_out:
        notes.append(_of_others(extractor, floor, split))
    if floor.scores["n"] < floor.samples.get("n", samples):
        debiased, plain = score_names(extractor, {"fd_debiased": 0.0, "fd": 0.0})
        notes.append(
            f"{extractor}: the noise floor is that of {floor.scores['n']:,.0f} real images, fewer than the samples, "
            f"for the split has no more of their classes: compare {debiased} with it, and not {plain}"
            + ("; recall and coverage have none" if extractor == "in_domain" else "")
        )
    return notes


def _of_others(extractor: str, floor: Floor, split: str) -> str:
    (debiased,) = score_names(extractor, {"fd_debiased": 0.0})
    value, error = floor.samples["fd_debiased"], floor.samples["fd_se"]
    return (
        f"{extractor}: the split {split} has no or too few images of {listed(floor.left_out)}, of which a fraction of "
        f"{floor.fraction:.2g} of the samples is: the noise floor is that of the other classes, of which the samples "
        f"score {debiased} {value:.4g} ± {error:.2g}"
    )


def baselines_of(floors: Mapping[str, Floor]) -> dict[str, Any]:
    """Return what a card says of the noise floors by extractor: classes left out, and the samples of the others."""
    without = {name: floor for name, floor in floors.items() if floor.left_out}
    if not without:
        return {}
    one = next(iter(without.values()))
    return {
        "classes": list(one.left_out),
        "fraction": one.fraction,
        "samples": {name: floor.samples for name, floor in without.items()},
    }


def recognition(classifier: Classifier, known: Sequence[str], features: Tensor, labels: Sequence[str | None]) -> Any:
    """Return how many real images the evaluator of labels recognises, JSON values.

    Args:
        classifier: the in-domain extractor, in evaluation mode.
        known: its classes, in the order of its logits.
        features: its features of the images, (N, D) float32.
        labels: the class of each image; those of none, or of one that it does not know, are left out.

    Returns:
        `n` images; `accuracy` over images; `mean_class_accuracy` over classes, each counting alike; `by_class`, of each
        class that has images: `n`, `accuracy` and `confident`, the fraction of a likeliest class of 0.9 or more.
    """
    numbers = class_numbers(labels, known)
    with torch.inference_mode():
        best = classifier.cpu().logits(features).double().softmax(dim=1)
    right, sure = best.argmax(dim=1) == numbers, best.amax(dim=1) >= SURE
    by_class = {
        name: {
            "n": int((own := numbers == number).sum()),
            "accuracy": right[own].double().mean().item(),
            "confident": sure[own].double().mean().item(),
        }
        for number, name in enumerate(known)
        if (numbers == number).any()
    }
    there = numbers != NO_CLASS
    if not by_class:
        return {"n": 0, "by_class": {}}
    return {
        "n": int(there.sum()),
        "accuracy": right[there].double().mean().item(),
        "mean_class_accuracy": math.fsum(each["accuracy"] for each in by_class.values()) / len(by_class),
        "by_class": by_class,
    }


def label_baselines(
    by_class: Mapping[str, Mapping[str, float]], labels: Sequence[str], classes: Sequence[str]
) -> dict[str, Any]:
    """Return what stands beside the label accuracy of some samples, JSON values.

    Args:
        by_class: of `recognition`.
        labels: the class that each sample was asked to show.
        classes: the names of all.

    Returns:
        `held_out`: the accuracy of held-out real images with the samples' fractions of classes, and `held_out_se`, its
        standard error; `held_out_confident` too; `constant`: the fraction of the most frequent class;
        `without_held_out`: classes of the samples that no held-out image shows, which are left out of the first three;
        `never_recognised`: classes of the samples of which the evaluator recognises no held-out image.
    """
    counts = count_classes(class_numbers(labels, classes), len(classes)).double()
    asked = {name: count for name, count in zip(classes, (counts / counts.sum()).tolist(), strict=True) if count}
    seen = {name: fraction for name, fraction in asked.items() if name in by_class}
    found: dict[str, Any] = {
        "constant": max(asked.values()),
        "without_held_out": [name for name in asked if name not in by_class],
        "never_recognised": [name for name in seen if not by_class[name]["accuracy"]],
    }
    if not seen:
        return found
    whole = math.fsum(seen.values())
    fractions = {name: fraction / whole for name, fraction in seen.items()}

    def mean(of: str) -> float:
        return math.fsum(fraction * by_class[name][of] for name, fraction in fractions.items())

    variance = math.fsum(
        fraction**2 * by_class[name]["accuracy"] * (1 - by_class[name]["accuracy"]) / by_class[name]["n"]
        for name, fraction in fractions.items()
    )
    return {
        "held_out": mean("accuracy"),
        "held_out_se": math.sqrt(variance),
        "held_out_confident": mean("confident"),
        **found,
    }
