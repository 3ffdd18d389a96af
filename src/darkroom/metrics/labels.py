"""Label scores: whether a classifier of real images recognises the classes of generated ones. Loads no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from darkroom.artifacts.manifest import ArtifactError
from darkroom.metrics.measure import Measurement, Samples
from darkroom.metrics.score import Score, wilson

if TYPE_CHECKING:
    from torch import Tensor


_label = partial(Score, group="labels", higher_is_better=True, fraction=True)


class ClassMetric:
    """Label accuracy, if classes were requested, and the confidence and evenness of the classes."""

    scores = (
        _label(
            "label_accuracy",
            "Fraction of generated images that the in-domain extractor takes for the requested class. Higher is "
            "better.",
            formula="fraction of samples whose most likely class in the in-domain extractor is the requested class",
            title="label accuracy",
        ),
        _label(
            "confident",
            "Fraction of generated images with a most likely class of probability 0.9 or more. Higher is better.",
            formula="fraction of samples whose most likely class in the in-domain extractor has a probability of 0.9 "
            "or more",
            title="confident fraction",
        ),
        _label(
            "rarest_class",
            "Fraction of generated images taken for the rarest class: near 0 where a class is never made.",
            formula="fraction of samples that the in-domain extractor takes for the class it takes the fewest for",
            title="rarest class",
        ),
    )

    needs = ("classifier",)

    def measure(self, samples: Samples, reference: object) -> Measurement:
        """Return `label_accuracy`, where images have labels, `confident` and `rarest_class`, and their baselines."""
        features, scores, baselines, notes = samples.features, {}, {}, list[str]()
        if any(label is not None for label in samples.labels):
            accuracy = label_accuracy(samples.classifier, features, samples.labels, samples.classes)
            scores["label_accuracy"] = accuracy
            if samples.recognised is not None:
                baselines["label_accuracy"] = label_baselines(samples.recognised, list(map(str, samples.labels)))
                own = recognition(samples.classifier, samples.classes, features, samples.labels)["by_class"]
                notes = worst_classes(own, samples.recognised)
        return Measurement(scores | class_scores(samples.classifier, features), notes=notes, baselines=baselines)


LITTLE = 0.8  # accuracy on held-out real images below which label scores are unreliable


def label_notes(scores: Mapping[str, float], baselines: Mapping[str, Any]) -> list[str]:
    """Return a card's notes on an unreliable label classifier."""
    real, notes = baselines.get("label_accuracy"), []
    if "label_accuracy" not in scores or real is None:
        return []
    if "held_out" in real and real["held_out"] < LITTLE:
        notes.append(
            f"label accuracy says little: the label classifier recognises {real['held_out']:.1%} of the held-out real "
            f"images of the same classes, less than {LITTLE:.0%}; a constant answer gets {real['constant']:.1%}"
        )
    if never := real["never_recognised"]:
        notes.append(f"images of {_some(never)} count as wrong: the label classifier recognises no held-out one")
    if untested := real["without_held_out"]:
        notes.append(f"no held-out image is of {_some(untested)}: the label classifier was not tested on such images")
    return notes


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:5])}{f' and {len(names) - 5:,} more' if len(names) > 5 else ''}"


def worst_classes(own: Mapping[str, Mapping[str, float]], real: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a card's note on the five classes of lowest label accuracy, if below real images, from `recognition`.

    A class counts if its 95% interval lies below that of held-out real images.
    """
    known = sorted((name for name in own if name in real), key=lambda name: own[name]["accuracy"])
    short = [
        f"{name} {own[name]['accuracy']:.2f} of {own[name]['n']:,} (real {real[name]['accuracy']:.2f})"
        for name in known
        if wilson(own[name]["accuracy"], int(own[name]["n"]))[1]
        < wilson(real[name]["accuracy"], int(real[name]["n"]))[0]
    ]
    return [f"label accuracy lies below that of real images in {_some(short)}"] if short else []


def require_known(labels: Sequence[str | None], classes: Sequence[str]) -> None:
    """Check that the classifier knows every label.

    Raises:
        ArtifactError: unknown labels; names them.
    """
    unknown = sorted({str(label) for label in labels} - set(classes))
    if unknown:
        raise ArtifactError(
            f"the extractor does not know the labels {unknown}: train it on these classes (`dvc repro`)."
        )


SURE = 0.9  # probability of the most likely class from which an image counts as confident


def _logits(classifier: Any, features: Tensor) -> Tensor:
    """Return the logits (N, K) of features (N, D) of a classifier with `logits`, in evaluation mode, on the CPU."""
    import torch

    with torch.inference_mode():
        return classifier.cpu().logits(features)


def class_scores(classifier: Any, features: Tensor) -> dict[str, float]:
    """Return the confidence of the classification, and the fraction of the rarest class, from features (N, D) float32.

    `confident`: the fraction of images whose most likely class has a probability of at least `SURE`; `rarest_class`:
    the fraction of the images that are assigned to the class with the fewest images.
    """
    best = _logits(classifier, features).double().softmax(dim=1)
    counts = best.argmax(dim=1).bincount(minlength=best.shape[1]).double()
    return {
        "confident": (best.amax(dim=1) >= SURE).double().mean().item(),
        "rarest_class": (counts.min() / counts.sum()).item(),
    }


def label_accuracy(classifier: Any, features: Tensor, labels: Sequence[str | None], classes: Sequence[str]) -> float:
    """Return the fraction of N images whose most likely class is their label, from features (N, D) float32.

    `labels` are the classes requested, N names; `classes` are the classifier's, in the order of its logits.

    Raises:
        ArtifactError: a label that the classifier does not know.
    """
    require_known(labels, classes)
    likeliest = _logits(classifier, features).argmax(dim=1)
    requested = likeliest.new_tensor([classes.index(str(label)) for label in labels])
    return (likeliest == requested).double().mean().item()


def recognition(classifier: Any, known: Sequence[str], features: Tensor, labels: Sequence[str | None]) -> Any:
    """Return the accuracy of the label classifier on real images, JSON values, from its features (N, D) float32.

    `known` are its classes, in the order of its logits; `labels` those of the images; others and None do not count.

    Returns:
        `n` images; `accuracy` over images; `mean_class_accuracy` over classes, equally weighted; `by_class`, for each
        class with images: `n`, `accuracy` and `confident`, the fraction with a likeliest class of 0.9 or more.
    """
    from darkroom.metrics.matching import class_numbers

    numbers = class_numbers(labels, known)
    best = _logits(classifier, features).double().softmax(dim=1)
    right, sure = (best.argmax(dim=1) == numbers).double(), (best.amax(dim=1) >= SURE).double()
    by_class = {
        name: {"n": int(own.sum()), "accuracy": right[own].mean().item(), "confident": sure[own].mean().item()}
        for number, name in enumerate(known)
        if (own := numbers == number).any()
    }
    if not by_class:
        return {"n": 0, "by_class": {}}
    return {
        "n": sum(each["n"] for each in by_class.values()),
        "accuracy": right[numbers >= 0].mean().item(),
        "mean_class_accuracy": math.fsum(each["accuracy"] for each in by_class.values()) / len(by_class),
        "by_class": by_class,
    }


def label_baselines(by_class: Mapping[str, Mapping[str, float]], labels: Sequence[str]) -> dict[str, Any]:
    """Return the baselines of the label accuracy of samples, JSON values.

    Σ_c p_c a_c is the accuracy on held-out real images of the same classes, p_c the fraction of class c among the
    samples and a_c the evaluator's accuracy on real images of it; max_c p_c is the accuracy of a constant answer.

    Args:
        by_class: from `recognition`.
        labels: the requested class of each sample.

    Returns:
        `held_out`, Σ p a, `held_out_se`, its standard error, and `held_out_confident`; `constant`, max p;
        `without_held_out`: classes of the samples without a held-out image, which are left out of the first three;
        `never_recognised`: classes of the samples whose held-out images the evaluator never recognises.
    """
    requested = {name: count / len(labels) for name, count in sorted(Counter(labels).items())}
    recognisable = {name: fraction for name, fraction in requested.items() if name in by_class}
    baselines: dict[str, Any] = {
        "constant": max(requested.values()),
        "without_held_out": [name for name in requested if name not in by_class],
        "never_recognised": [name for name in recognisable if not by_class[name]["accuracy"]],
    }
    if not recognisable:
        return baselines
    whole = math.fsum(recognisable.values())
    real = [(fraction / whole, by_class[name]) for name, fraction in recognisable.items()]
    variances = (p**2 * of["accuracy"] * (1 - of["accuracy"]) / of["n"] for p, of in real)
    return {
        "held_out": math.fsum(p * of["accuracy"] for p, of in real),
        "held_out_se": math.sqrt(math.fsum(variances)),
        "held_out_confident": math.fsum(p * of["confident"] for p, of in real),
        **baselines,
    }
