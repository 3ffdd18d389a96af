"""Both sides of a comparison have the same classes: weights, rows that are kept, and real images like the samples."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.baselines import noise_floor, notes_on_classes
from darkroom.metrics.frechet import covariance_root, frechet_distance
from darkroom.metrics.kernel import cubic, kernel_jackknife, within
from darkroom.metrics.matching import (
    alike_rows,
    class_numbers,
    class_weights,
    count_classes,
    kept_rows,
    missing,
    shares_of,
)
from darkroom.metrics.measure import distances
from darkroom.metrics.moments import WeightedMoments
from darkroom.metrics.reference import Reference, build_reference
from darkroom.metrics.uncertainty import assign_blocks
from darkroom.models.generators.conditions import by_frequency

NAMES = ("a", "b", "c")
COUNTS = st.lists(st.integers(2, 40), min_size=2, max_size=5)


def draw(seed: int, labels: Tensor, spread: float = 1.0) -> Tensor:
    """Return features of images whose classes lie apart."""
    noise = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(seed))
    return (spread * noise + 3 * torch.nn.functional.one_hot(labels, 6)).float()


def repeated(*counts: int) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def build(x: Tensor, labels: Tensor | None, classes: tuple[str, ...] = NAMES, kid_images: int = 10_000) -> Reference:
    return build_reference("in_domain", "ab" * 32, x.split(17), len(x), kid_images, labels, classes)


@given(COUNTS)
def test_weights_give_each_class_its_fraction(counts: list[int]) -> None:
    labels = torch.cat([repeated(*counts), torch.tensor([-1, -1])])
    shares = torch.rand(len(counts), dtype=torch.float64, generator=torch.Generator().manual_seed(sum(counts)))
    weights = class_weights(labels, shares / shares.sum())
    of_class = torch.bincount(labels.clamp(min=0), weights=weights, minlength=len(counts))
    torch.testing.assert_close(of_class, shares / shares.sum(), rtol=1e-12, atol=0)
    assert (weights[-2:] == 0).all()


@pytest.mark.parametrize("repeats", [[1, 1, 1, 1], [3, 1, 2, 4]])
def test_a_weighted_set_is_the_set_with_copies(repeats: list[int]) -> None:
    """Mean and population covariance exactly; the unbiased forms count a copy as no new image."""
    x, times = draw(0, torch.tensor([0, 1, 2, 0])), torch.tensor(repeats)
    weights = times.double() / times.sum()
    copies = x.repeat_interleave(times, 0).double()
    sums = WeightedMoments(6)
    for rows, own in zip(x.split(3), weights.split(3), strict=True):
        sums.update(rows, own * 7)  # no sum of 1 is asked for
    found, lost = sums.compute(), 1 - float(weights.square().sum())
    assert found.count == 4
    torch.testing.assert_close(found.mean, copies.mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.cov * lost, torch.cov(copies.T, correction=0), rtol=1e-11, atol=1e-11)
    kernel = cubic(x.double(), x.double())
    direct = (weights @ kernel @ weights - (weights.square() * kernel.diagonal()).sum()) / lost
    assert within(x, weights=weights) == pytest.approx(float(direct), rel=1e-12)
    other = draw(1, torch.tensor([0, 1, 2, 0, 1, 1]))
    block = assign_blocks(6, 3)
    with_copies = kernel_jackknife(x.repeat_interleave(times, 0), 0.0, other, block)
    assert kernel_jackknife(x, 0.0, other, block, weights=weights).value == pytest.approx(with_copies.value, rel=1e-9)


def test_equal_weights_are_none() -> None:
    x, y = draw(0, repeated(8, 8, 8)), draw(1, repeated(5, 5, 5))
    even = torch.full((24,), 1 / 24, dtype=torch.float64)
    assert within(x, weights=even) == pytest.approx(within(x), rel=1e-12)
    block = assign_blocks(15, 3)
    plain, weighted = (kernel_jackknife(x, within(x), y, block, weights=each) for each in (None, even))
    assert weighted.value == pytest.approx(plain.value, rel=1e-9)
    assert weighted.se == pytest.approx(plain.se, rel=1e-9)


def test_classes_of_equal_counts_are_balanced_by_frequency() -> None:
    labels = repeated(30, 30, 30)
    reference, samples = build(draw(0, labels), labels), draw(1, repeated(20, 20, 20))
    assert reference.balanced is None and reference.matched("balanced") is reference is reference.matched("frequency")
    by_count = distances(samples, reference.matched({"a": 5, "b": 5, "c": 5}), 5)
    for name, value in distances(samples, reference, 5).items():
        assert by_count[name] == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_a_balanced_reference_is_that_of_as_many_images_of_each_class() -> None:
    """Of 60, 30 and 10 images of a class weighted alike: the moments of images each copied, and of no class none."""
    labels = torch.cat([repeated(60, 30, 10), torch.tensor([-1] * 7)])
    x = draw(0, labels.clamp(min=0))
    found, known = build(x, labels).matched("balanced"), x[:100]
    copies = known.repeat_interleave(torch.tensor([1, 2, 6])[labels[:100]], 0).double()
    torch.testing.assert_close(found.mean, copies.mean(0), rtol=1e-10, atol=1e-12)
    lost = 1 - (1 / 9) * (1 / 60 + 1 / 30 + 1 / 10)
    torch.testing.assert_close(found.cov * lost, torch.cov(copies.T, correction=0), rtol=1e-10, atol=1e-10)
    assert found.n == 100 and found.kid_weights is not None and (found.kid_weights[100:] == 0).all()
    kept = build(x, labels, kid_images=20).matched("balanced")
    torch.testing.assert_close(kept.mean, found.mean, rtol=1e-12, atol=0)  # of all images, and not of those kept
    assert len(kept.kid_features) < 40


def test_a_set_is_at_no_distance_from_itself() -> None:
    labels = repeated(60, 30, 10)
    x = draw(0, labels)
    for distribution in ("frequency", "balanced", {"a": 1, "c": 3}):
        found = build(x, labels).matched(distribution)
        assert frechet_distance(found.moments, found.root, found.moments) == pytest.approx(0, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["frequency", "balanced", "counts"]))
def test_distances_are_symmetric_and_of_no_order(seed: int, which: str) -> None:
    distribution = {"a": 2, "b": 1, "c": 5} if which == "counts" else which
    labels = repeated(25, 15, 9)
    one, other = (build(draw(seed + at, labels), labels).matched(distribution) for at in (0, 1))
    there = frechet_distance(one.moments, one.root, other.moments)
    assert there == pytest.approx(frechet_distance(other.moments, covariance_root(other.cov), one.moments), rel=1e-7)
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    again = build(draw(seed, labels)[mixed], labels[mixed]).matched(distribution)
    torch.testing.assert_close(again.cov, one.cov, rtol=1e-9, atol=1e-11)
    assert again.kid_within == pytest.approx(one.kid_within, rel=1e-9)


@given(st.integers(20, 400), st.integers(10, 500), st.integers(0, 100))
def test_rows_are_drawn_and_of_each_class_some(total: int, most: int, seed: int) -> None:
    labels = torch.from_numpy(np.random.default_rng(seed).choice(4, total, p=[0.9, 0.06, 0.03, 0.01]))
    rows = kept_rows(total, most, labels)
    assert rows == sorted(set(rows)) and len(rows) <= max(most, min(total, most + 32))
    counts, kept = (count_classes(each, 4) for each in (labels, labels[rows]))
    assert (kept >= counts.clamp(max=8)).all() and len(rows) >= min(total, most)
    assert set(kept_rows(total, most, None)) <= set(rows)


def test_kept_rows_of_rare_classes_are_weighted_back() -> None:
    labels = repeated(4000, 40, 8)
    x = draw(0, labels)
    few = build(x, labels, kid_images=200)
    assert few.kid_weights is not None and 200 <= len(few.kid_features) <= 216
    of_class = torch.bincount(few.labels, weights=few.kid_weights)
    torch.testing.assert_close(of_class, torch.tensor([4000, 40, 8]).double() / 4048, rtol=1e-9, atol=0)


@given(COUNTS, st.lists(st.integers(0, 30), min_size=5, max_size=5), st.integers(0, 9))
def test_real_images_are_as_many_and_of_the_classes_or_as_many_as_there_are(
    there: list[int], asked: list[int], seed: int
) -> None:
    asked = asked[: len(there)]
    labels = torch.from_numpy(np.random.default_rng(seed).permutation(repeated(*there).numpy()))
    rows, _ = alike_rows(labels, repeated(*asked), "balanced")
    found = count_classes(labels[rows], len(there))
    assert len(set(rows)) == len(rows)
    if all(a <= h for a, h in zip(asked, there, strict=True)):
        assert found.tolist() == asked
        return
    fraction = min(h / a for h, a in zip(there, asked, strict=True) if a)
    assert len(rows) == int(sum(asked) * fraction + 1e-6)
    assert all(abs(f - a * fraction) <= 1 for f, a in zip(found.tolist(), asked, strict=True))


def test_by_frequency_any_drawn_images_serve_where_a_class_is_short_of_them() -> None:
    labels = repeated(100, 3)
    rows, alike = alike_rows(labels, repeated(50, 5), "balanced")
    assert len(rows) == 33 and alike
    rows, alike = alike_rows(labels, repeated(50, 2), "frequency")
    assert count_classes(labels[rows], 2).tolist() == [50, 2] and alike
    for wanted, count in ((repeated(50, 5), 55), (repeated(500, 5), 103), (torch.full((20,), -1), 20)):
        rows, alike = alike_rows(labels, wanted, "frequency")
        assert len(set(rows)) == len(rows) == count and not alike


@pytest.mark.slow
def test_of_rare_classes_the_floor_of_any_drawn_images_errs_as_it_says() -> None:
    """Samples have the frequencies, and of 260 held-out images it is chance how many are of a class of one or two.

    The differences, in standard errors, are about standard normal; -1.9 ± 1.1 with the classes spread over the blocks.
    """
    draws = np.random.default_rng(0)
    fractions = np.array([600, 160, 80, 53, 40, 27, 24, 10, 4, 2]) / 1000
    means = 2 * draws.normal(size=(10, 6))

    def images(labels: np.ndarray) -> tuple[Tensor, Tensor]:
        features = means[labels] + draws.normal(size=(len(labels), 6))
        return torch.tensor(features, dtype=torch.float32), torch.from_numpy(labels)

    off = []
    for _ in range(50):
        x, labels = images(draws.choice(10, 1500, p=fractions))
        others, of = images(draws.choice(10, 260, p=fractions))
        counts = torch.bincount(labels, minlength=10).tolist()
        y, wanted = images(by_frequency(counts)(np.arange(1000)))
        reference = replace(build(x, labels, tuple("abcdefghij")), unseen=others, unseen_labels=of)
        found = distances(y, reference, 10, wanted)
        floor = noise_floor(reference, reference, "frequency", wanted, 10)
        assert floor["n"] == 260
        off.append((found["fd_debiased"] - floor["fd_debiased"]) / np.hypot(found["fd_se"], floor["fd_se"]))
    assert abs(np.mean(off)) < 0.6 and np.std(off) < 1.4 and (np.abs(off) > 2).mean() < 0.12, (
        np.mean(off),
        np.std(off),
    )


def test_a_class_without_real_images_is_named() -> None:
    labels = repeated(20, 20, 0)
    reference = build(draw(0, labels), labels)
    assert missing("balanced", NAMES, reference.counts) == ["c"] == missing({"a": 1, "c": 2}, NAMES, reference.counts)
    assert shares_of("balanced", NAMES, reference.counts).tolist() == [0.5, 0.5, 0]
    assert noise_floor(reference, reference, "balanced", labels, 5) == {}
    notes = notes_on_classes(reference, "balanced", 40, {}, "test")
    assert "no images of the requested classes c" in notes[0] and "the split test has too few" in notes[1]
    with pytest.raises(DarkroomError, match="has no images of the classes requested from the samples"):
        reference.matched({"c": 3})
    assert class_numbers(["c", None, "x", "a"], NAMES).tolist() == [2, -1, -1, 0]


def test_sums_of_two_images_at_least() -> None:
    sums = WeightedMoments(6)
    sums.update(draw(0, repeated(1, 1, 1)), torch.tensor([1.0, 0.0, 0.0]))
    with pytest.raises(DarkroomError, match="at least 2 images, not 1"):
        sums.compute()


def test_the_floor_is_that_of_other_real_images(tmp_path: Path) -> None:
    labels, unseen = repeated(300, 90, 30), repeated(100, 30, 10)
    reference = build(draw(0, labels), labels)
    whole = replace(reference, unseen=draw(5, unseen), unseen_labels=unseen)
    whole.save(tmp_path)
    again = Reference.load(tmp_path, "in_domain")
    wanted = repeated(40, 40, 40)
    found, same = (noise_floor(each, each.matched("balanced"), "balanced", wanted, 10) for each in (whole, again))
    assert found == same and found["n"] == 30
    assert abs(found["fd_debiased"]) < 3 * found["fd_se"]
    unmatched = noise_floor(whole, whole, "balanced", wanted, 10)
    assert unmatched["fd_debiased"] > 3 * unmatched["fd_se"]  # compared with images of other classes
    assert again.balanced is not None and again.classes == NAMES


def test_without_enough_images_of_a_class_there_is_no_floor() -> None:
    labels, unseen = repeated(300, 90, 30), repeated(100, 30, 10)
    reference = replace(build(draw(0, labels), labels), unseen=draw(5, unseen), unseen_labels=unseen)
    wanted, matched = repeated(40, 40, 40), reference.matched("balanced")
    found = noise_floor(reference, matched, "balanced", wanted, 10)
    assert {"precision", "density"} < found.keys()
    assert not {"recall", "coverage"} & found.keys()  # 30 images reach fewer real ones than 120 do
    assert {"recall", "coverage_se"} < noise_floor(reference, matched, "frequency", wanted[:30], 10).keys()
    assert len(notes_on_classes(reference, "balanced", 120, found, "test")) == 1
    nothing = replace(reference, unseen=draw(5, repeated(0, 0, 5)), unseen_labels=repeated(0, 0, 5))
    assert noise_floor(nothing, matched, "balanced", repeated(9, 9), 10) == {}
