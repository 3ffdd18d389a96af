"""What the evaluator of labels is worth: how many held-out real images it recognises, by class.

A label accuracy means little alone. Beside it stand what held-out real images of the same classes get, Σ_c p_c a_c with
p_c the fraction of class c among the samples and a_c the evaluator's accuracy on real images of it, and what a constant
answer gets, max_c p_c.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from darkroom.metrics.labels import SURE, Classifier
from darkroom.metrics.matching import NO_CLASS, class_numbers, count_classes


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
        standard error; `held_out_confident` likewise; `constant`: the fraction of the most frequent class;
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
