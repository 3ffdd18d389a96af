"""Diversity: pairs of one class, real pairs like them, and what a model that repeats itself has."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from darkroom.metrics.uncertainty import mean_and_error, weighted_mean_and_error
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.pairs import in_domain_measure
from darkroom.stages.diversity import alike_pairs, classes_of, distances_of, pairs


def by_row(images: np.ndarray) -> Any:
    """Return images as shards give them."""
    return SimpleNamespace(__getitems__=lambda rows: np.ascontiguousarray(images[list(rows)]))


LABELS = st.lists(st.sampled_from(["a", "b", None]), min_size=5, max_size=40)


@given(LABELS, st.integers(0, 5), st.integers(1, 30))
def test_pairs_are_of_one_class_and_no_image_is_in_two(labels: list[str | None], seed: int, most: int) -> None:
    found = pairs(labels, most, seed)
    assert all(labels[one] == labels[other] for one, other in found)
    assert len(set(found.flatten().tolist())) == found.size
    possible = sum(labels.count(name) // 2 for name in ("a", "b", None))
    assert len(found) == min(most, possible)
    assert (found == pairs(labels, most, seed)).all()


@given(LABELS, LABELS, st.integers(0, 3))
def test_real_pairs_count_as_the_classes_of_the_others(
    labels: list[str | None], real: list[str | None], seed: int
) -> None:
    wanted = classes_of(labels, pairs(labels, 8, seed))
    found, weights = alike_pairs(real, wanted, seed)
    assert len(set(found.flatten().tolist())) == found.size and len(weights) == len(found)
    assert all(real[one] == real[other] for one, other in found)
    asked, taken = Counter(wanted), Counter(classes_of(real, found))
    for name, count in asked.items():
        assert taken[name] == min(count, real.count(name) // 2)
    there = {name: count for name, count in asked.items() if taken[name]}
    for name, count in there.items():
        of_class = [float(w) for w, of in zip(weights, classes_of(real, found), strict=True) if of == name]
        assert sum(of_class) == pytest.approx(count / sum(there.values()))


def test_the_distances_of_pairs_in_their_order() -> None:
    images = np.broadcast_to(np.arange(80, dtype=np.uint8)[:, None, None, None], (80, 3, 2, 2))

    def measure(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (one.double() - other.double()).abs().mean((1, 2, 3))

    chosen = np.array([[row, 2 * row] for row in range(40)])
    assert distances_of(measure, by_row(images), chosen, "d").tolist() == list(range(40))


def test_weights_of_a_mean_and_its_error() -> None:
    values, even = torch.tensor([1.0, 2.0, 6.0]).double(), torch.full((3,), 1 / 3).double()
    assert weighted_mean_and_error("d", values, None) == mean_and_error("d", values.tolist())
    found = weighted_mean_and_error("d", values, even)
    assert found["d"] == pytest.approx(3) and found["d_se"] == pytest.approx(np.std([1, 2, 6]) / np.sqrt(3))
    assert weighted_mean_and_error("d", values, torch.tensor([0, 0, 1.0]).double()) == {"d": 6, "d_se": 0}


def test_without_pairs_there_are_none() -> None:
    assert pairs(["a", "b"], 10, 0).shape == (0, 2) and pairs([], 10).shape == (0, 2)
    found, weights = alike_pairs(["a", "a", "b"], ["b", "c"])
    assert found.shape == (0, 2) and len(weights) == 0


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, list[str]]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.round(found.images[:, None] * (255 / 16)).astype(np.uint8), [str(label) for label in found.target]


@pytest.fixture(scope="module", params=[1, 4], ids=["grey", "transparent"])
def network(request: pytest.FixtureRequest, digits: tuple[np.ndarray, list[str]]) -> Classifier:
    """A classifier of digits, trained for seconds."""
    torch.manual_seed(0)
    found = Classifier(request.param, 10, [8, 16], 16)
    images = torch.from_numpy(digits[0]).expand(-1, request.param, -1, -1)
    labels = torch.tensor([int(label) for label in digits[1]])
    optimizer = torch.optim.AdamW(found.parameters(), 4e-3)
    for rows in torch.randperm(len(labels)).split(50):
        loss = torch.nn.functional.cross_entropy(found(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return found.eval()


def test_a_model_that_repeats_itself_is_below_real_images_and_noise_above(
    network: Classifier, digits: tuple[np.ndarray, list[str]]
) -> None:
    channels = network.config["in_channels"]
    images, labels = np.broadcast_to(digits[0], (len(digits[0]), channels, 8, 8)), digits[1]
    measure = in_domain_measure(network, torch.device("cpu"))
    draws = np.random.default_rng(0)
    mixed = draws.permutation(len(labels))
    sets = {"real": images[mixed[:600]], "others": images[mixed[600:1200]]}
    of = {name: [labels[row] for row in rows] for name, rows in (("real", mixed[:600]), ("others", mixed[600:1200]))}
    # Of each class two images alone, again and again, with a little noise.
    first: dict[str, list[int]] = {}
    for row in mixed:
        if len(first.setdefault(labels[row], [])) < 2:
            first[labels[row]].append(row)
    again = images[[first[name][draws.integers(2)] for name in of["real"]]]
    sets["collapsed"] = (again.astype(int) + draws.integers(-4, 5, again.shape)).clip(0, 255).astype(np.uint8)
    noisy = sets["real"].astype(int) + draws.normal(0, 80, again.shape)
    sets["noisy"] = noisy.clip(0, 255).astype(np.uint8)
    found = {}
    for name, pictures in sets.items():
        names = of.get(name, of["real"])
        values = distances_of(measure, by_row(pictures), pairs(names, 250), "d")
        found[name] = mean_and_error("d", values.tolist())
    real, error = found["real"]["d"], found["real"]["d_se"]
    assert abs(found["others"]["d"] - real) < 3 * np.hypot(error, found["others"]["d_se"])
    assert found["collapsed"]["d"] < 0.75 * real and found["collapsed"]["d"] < real - 10 * error
    assert found["noisy"]["d"] > real + 5 * error


def test_equal_images_are_at_no_distance_in_any_order(network: Classifier) -> None:
    measure = in_domain_measure(network, torch.device("cpu"))
    draw = torch.Generator().manual_seed(0)
    one, other = (torch.randint(0, 256, (3, network.config["in_channels"], 8, 8), generator=draw).byte() for _ in "ab")
    assert measure(one, one).tolist() == [0, 0, 0]
    torch.testing.assert_close(measure(one, other), measure(other, one), rtol=1e-5, atol=0)
    torch.testing.assert_close(measure(one[1:], other[1:]), measure(one, other)[1:], rtol=1e-4, atol=0)
