"""Held-out images are a reference where they are enough, and a copier gains nothing from it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from darkroom.metrics.frechet import covariance_root, frechet_distance
from darkroom.metrics.measure import distances
from darkroom.metrics.moments import Moments
from darkroom.metrics.reference import Reference, build_reference, held_out_reference, moments_of
from darkroom.metrics.sample_scores import ENOUGH, held_out_names
from darkroom.metrics.table import scores

D = 8


def draw(seed: int, count: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(count, D)), dtype=torch.float32)


def reference(unseen: int, train: int = 60) -> Reference:
    labels = torch.arange(unseen) % 2
    found = build_reference("in_domain", "x", [draw(0, train)], train, train, torch.arange(train) % 2, ["a", "b"])
    return replace(found, unseen=draw(1, unseen), unseen_labels=labels)


def test_they_are_enough_from_ten_a_feature_on():
    assert held_out_reference(reference(ENOUGH * D - 1)) is None
    found = held_out_reference(reference(ENOUGH * D))
    assert found is not None and found.n == ENOUGH * D and torch.equal(found.unseen, draw(0, 60))
    torch.testing.assert_close(found.mean, draw(1, ENOUGH * D).double().mean(0))
    assert found.classes == ("a", "b") and found.unseen_labels.tolist() == (torch.arange(60) % 2).tolist()


@pytest.mark.parametrize(("distribution", "there"), [("frequency", 1), ("balanced", 0), ({"b": 9}, 0), ({"a": 9}, 1)])
def test_they_are_no_reference_without_a_class_that_was_asked_for(distribution, there):
    whole = reference(ENOUGH * D)
    of_one = replace(whole, unseen_labels=torch.zeros(ENOUGH * D, dtype=torch.int64))
    assert held_out_reference(whole, distribution) is not None
    assert (held_out_reference(of_one, distribution) is not None) == there


def test_the_bias_is_what_the_threshold_says():
    """D (D / 4 + 1) / n, of features of variance 1."""
    exact = Moments(10**6, torch.zeros(32).double(), torch.eye(32).double())
    root = covariance_root(exact.cov)
    values = [
        frechet_distance(
            exact, root, moments_of(torch.randn(ENOUGH * 32, 32, generator=torch.Generator().manual_seed(n)))
        )
        for n in range(20)
    ]
    assert np.mean(values) == pytest.approx(32 * (32 / 4 + 1) / (ENOUGH * 32), rel=0.15)


def test_a_copier_is_best_from_train_and_not_from_held_out_images():
    whole = reference(400)
    unseen = held_out_reference(whole)
    copies, fresh = draw(0, 60), draw(2, 60)
    of = {
        name: [distances(made, real, 5)["fd"] for real in (whole, unseen)]
        for name, made in (("copies", copies), ("fresh", fresh))
    }
    assert of["copies"][0] < 0.01 < of["fresh"][0]
    assert of["copies"][1] == pytest.approx(of["fresh"][1], rel=0.5)


def test_names_are_those_of_the_table():
    found = held_out_names({"fd": 1.0, "fd_debiased": 2.0, "fd_se": 3.0, "kid": 4.0, "kid_se": 5.0})
    assert list(found) == ["fd_held_out", "fd_held_out_debiased", "fd_held_out_se", "kid_held_out", "kid_held_out_se"]
    assert {name for name in found if not name.endswith("_se")} < set(scores())
    assert "fid_held_out_debiased" in scores() and "inception_kid_held_out" in scores()
