"""Scores where classes are unequal: rendered scenes of five colours, 60, 20, 10, 5 and 5 %.

Held-out real images score like other held-out real images in whatever way they are asked for, and a model that is
better by construction is never called worse.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.data.draw import drawn
from darkroom.data.images import to_array
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import COLOURS, scene
from darkroom.metrics.baselines import noise_floor
from darkroom.metrics.cards import score_card
from darkroom.metrics.labels import label_baselines, recognition
from darkroom.metrics.matching import Distribution, count_classes
from darkroom.metrics.measure import distances
from darkroom.metrics.reference import Reference, build_reference
from darkroom.models.evaluators.extractor import Classifier
from darkroom.tools.compare.revisions import Results
from darkroom.tools.compare.verdicts import compare

CLASSES = tuple(COLOURS)[:5]
PARTS = (12, 4, 2, 1, 1)  # of 20
WAYS = ("first", "balanced", "128", "all")
TRIALS = 50


def images_of(first: int, count: int, size: int = 16) -> tuple[NDArray[np.uint8], Tensor]:
    """Return rendered scenes with the shares above, class by class as keys often lie, and their class numbers."""
    wanted = {colour: count * part // 20 for colour, part in zip(CLASSES, PARTS, strict=True)}
    found: dict[str, list[NDArray[np.uint8]]] = {colour: [] for colour in CLASSES}
    number = first
    while any(len(found[colour]) < wanted[colour] for colour in CLASSES):
        one = scene(0, number, ("position",))
        colour = one.objects[0].colour
        if colour in wanted and len(found[colour]) < wanted[colour]:
            found[colour].append(to_array(render(one, size)))
        number += 1
    labels = torch.repeat_interleave(torch.arange(5), torch.tensor([wanted[colour] for colour in CLASSES]))
    return np.stack([image for colour in CLASSES for image in found[colour]]), labels


@pytest.fixture(scope="module")
def extractor() -> Classifier:
    """A classifier of the colours, trained for seconds."""
    torch.manual_seed(0)
    network = Classifier(3, 5, [16, 24], 12)
    pixels, labels = images_of(100_000, 1000)
    data = torch.from_numpy(pixels)
    optimizer = torch.optim.AdamW(network.parameters(), 4e-3)
    for _ in range(6):
        for rows in torch.randperm(len(labels)).split(50):
            loss = torch.nn.functional.cross_entropy(network(data[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()


def features_of(extractor: Classifier, pixels: NDArray[np.uint8]) -> Tensor:
    with torch.no_grad():
        return torch.cat([extractor.features(group) for group in torch.from_numpy(pixels).split(200)])


@pytest.fixture(scope="module")
def reference(extractor: Classifier) -> Reference:
    """Of 1,200 images, with 1,000 held-out ones."""
    pixels, labels = images_of(0, 1200)
    features = features_of(extractor, pixels)
    found = build_reference("in_domain", "", features.split(64), 1200, 10_000, labels, CLASSES)
    unseen, unseen_labels = images_of(30_000, 1000)
    return replace(found, unseen=features_of(extractor, unseen), unseen_labels=unseen_labels)


@pytest.fixture(scope="module")
def pool(extractor: Classifier) -> tuple[NDArray[np.uint8], Tensor, Tensor]:
    """4,000 further real images, their features and classes."""
    pixels, labels = images_of(200_000, 4000)
    return pixels, features_of(extractor, pixels), labels


def asked(way: str, labels: Tensor, trial: int) -> tuple[list[int], Distribution]:
    """Return rows of 500 real images as a stage would ask for them, and the distribution of classes on the card."""
    split = sorted(drawn(len(labels), 500, trial))  # a held-out split of its own, class by class
    of = labels[split]
    if way == "first":  # of the commonest class alone
        found = count_classes(of[:128], 5)
        names = {name: count for name, count in zip(CLASSES, found.tolist(), strict=True) if count}
        return split[:128], names
    if way == "balanced":
        each = [np.flatnonzero(of == number)[:20] for number in range(5)]
        return [split[row] for row in np.concatenate(each)], "balanced"
    return [split[row] for row in drawn(500, 128 if way == "128" else 500)], "frequency"


def scored(reference: Reference, features: Tensor, classes: Tensor, distribution: Distribution) -> dict[str, float]:
    return distances(features, reference.matched(distribution), 10, classes)


@pytest.mark.parametrize("way", WAYS)
def test_held_out_real_images_score_within_the_noise_floor(
    reference: Reference, pool: tuple[NDArray[np.uint8], Tensor, Tensor], way: str
) -> None:
    """Differences from the floor, in standard errors, are about standard normal: none is far, and few are above 2."""
    _, features, labels = pool
    off: list[list[float]] = []
    for trial in range(20):
        rows, distribution = asked(way, labels, trial)
        found = scored(reference, features[rows], labels[rows], distribution)
        matched = reference.matched(distribution)
        floor = noise_floor(reference, matched, distribution, labels[rows], 10)
        assert floor["n"] == len(rows)
        off.append([(found[a] - floor[a]) / np.hypot(found[b], floor[b]) for a, b in PAIRS])
    assert np.abs(off).max() < 4.5 and (np.abs(off) < 2).mean() > 0.75


PAIRS = (("fd_debiased", "fd_se"), ("kid", "kid_se"))


@pytest.mark.parametrize("way", ["first", "balanced"])
def test_without_the_same_classes_they_score_far_from_it(
    reference: Reference, pool: tuple[NDArray[np.uint8], Tensor, Tensor], way: str
) -> None:
    """What the test above is for: real images of other classes than the reference's."""
    _, features, labels = pool
    rows, _ = asked(way, labels, 0)
    found = scored(reference, features[rows], labels[rows], "frequency")
    floor = noise_floor(reference, reference, "frequency", torch.full((len(rows),), -1), 10)
    assert found["fd_debiased"] - floor["fd_debiased"] > 10 * np.hypot(found["fd_se"], floor["fd_se"])


def revision(name: str, scores: dict[str, float], distribution: Distribution) -> Results:
    facts = {"in_domain": {"sha256": "", "dim": 12, "n": 1200, "kid_n": 1200}}
    card = score_card(
        scores=scores,
        extractors=facts,
        reference_id="",
        reference_split="train",
        n_fake=int(scores["n"]),
        classes=distribution,
        blocks=10,
        sampler={"name": name},
    )
    return Results(name, {"generator": scores}, {"generator": card})


def verdicts(results: Sequence[Results]) -> dict[str, str]:
    return {row.name: row.verdict for row in compare(*results)}


def test_a_better_model_is_never_called_worse(
    extractor: Classifier, reference: Reference, pool: tuple[NDArray[np.uint8], Tensor, Tensor]
) -> None:
    """The worse model shows the same images, half of them with noise."""
    pixels, features, labels = pool
    found: dict[str, list[str]] = {way: [] for way in WAYS}
    for trial in range(TRIALS):
        way = WAYS[trial % len(WAYS)]
        rows, distribution = asked(way, labels, trial)
        draws = np.random.default_rng(trial)
        noisy = pixels[rows].astype(float)
        half = draws.permutation(len(rows))[: len(rows) // 2]
        noisy[half] += draws.normal(0, 60, noisy[half].shape)
        worse = features_of(extractor, noisy.round().clip(0, 255).astype(np.uint8))
        results = []
        for name, these in (("worse", worse), ("better", features[rows])):
            scores = {**scored(reference, these, labels[rows], distribution), "n": float(len(rows))}
            right = (extractor.logits(these).argmax(1) == labels[rows]).double().mean().item()
            results.append(revision(name, scores | {"label_accuracy": right}, distribution))
        judged = verdicts(results)
        assert set(judged) == {"fd", "fd_debiased", "kid", "label_accuracy"}
        assert not any(verdict.startswith(("worse", "not comparable")) for verdict in judged.values()), (way, judged)
        found[way].append(judged["fd_debiased"])
    told = {way: sum(each.startswith("better") for each in of) / len(of) for way, of in found.items()}
    assert min(told.values()) > 0.5, told  # and mostly better: of 100 balanced images least often


def test_balanced_and_natural_samples_do_not_compare(
    reference: Reference, pool: tuple[NDArray[np.uint8], Tensor, Tensor]
) -> None:
    _, features, labels = pool
    results = []
    for way in ("balanced", "128"):
        rows, distribution = asked(way, labels, 0)
        scores = {**scored(reference, features[rows], labels[rows], distribution), "n": 100.0}
        results.append(revision(way, scores, distribution))
    assert set(verdicts(results).values()) == {"not comparable: classes (balanced and frequency)"}


def test_beside_a_label_accuracy_stands_what_real_images_get(
    extractor: Classifier, pool: tuple[NDArray[np.uint8], Tensor, Tensor]
) -> None:
    """By weights of the classes what by counting images of them, however the images are asked for."""
    _, features, labels = pool
    names = [CLASSES[number] for number in labels.tolist()]
    facts = recognition(extractor, CLASSES, features, names)
    right = (extractor.logits(features).argmax(1) == labels).double()
    assert facts["n"] == 4000 and facts["accuracy"] == pytest.approx(float(right.mean()))
    by_class = [float(right[labels == number].mean()) for number in range(5)]
    assert facts["mean_class_accuracy"] == pytest.approx(np.mean(by_class))
    natural = label_baselines(facts["by_class"], names)
    assert natural["held_out"] == pytest.approx(facts["accuracy"]) and natural["constant"] == 0.6
    even = label_baselines(facts["by_class"], list(CLASSES) * 20)
    assert even["held_out"] == pytest.approx(np.mean(by_class)) and even["constant"] == 0.2
    variance = sum(0.04 * a * (1 - a) / n for a, n in zip(by_class, (2400, 800, 400, 200, 200), strict=True))
    assert even["held_out_se"] == pytest.approx(np.sqrt(variance))


def test_classes_that_are_never_recognised_or_never_shown_are_named(extractor: Classifier) -> None:
    class Blind:
        """Recognises the first class alone."""

        def cpu(self) -> "Blind":
            return self

        def logits(self, features: Tensor) -> Tensor:
            return torch.nn.functional.one_hot(torch.zeros(len(features), dtype=torch.int64), 5) * 9.0

    first, second, third, fourth, _ = CLASSES
    facts = recognition(Blind(), CLASSES, torch.zeros(6, 12), [first, first, second, third, None, "else"])
    assert facts["n"] == 4 and facts["by_class"][first] == {"n": 2, "accuracy": 1.0, "confident": 1.0}
    found = label_baselines(facts["by_class"], [first, second, fourth])
    assert found["never_recognised"] == [second] and found["without_held_out"] == [fourth]
    assert found["held_out"] == 0.5 and found["constant"] == pytest.approx(1 / 3)
    nothing = recognition(Blind(), CLASSES, torch.zeros(1, 12), [None])
    assert nothing == {"n": 0, "by_class": {}}
    assert "held_out" not in label_baselines(nothing["by_class"], [first])
