import numpy as np
import pytest
import torch

from darkroom.metrics.kernel import cmmd
from darkroom.metrics.uncertainty import assign_blocks


def draw(seed: int, n: int, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 8)) + shift


def direct(x: np.ndarray, y: np.ndarray) -> float:
    """The definition, pair by pair, of embeddings of length 1."""
    x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))

    def mean(one: np.ndarray, two: np.ndarray, same: bool) -> float:
        values = [
            np.exp(-((a - b) ** 2).sum() / 200)
            for i, a in enumerate(one)
            for j, b in enumerate(two)
            if not (same and i == j)
        ]
        return float(np.sum(values) / len(values))

    return 1000 * (mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False))


def test_agrees_with_the_definition_and_is_symmetric() -> None:
    x, y = draw(0, 20), draw(1, 23, 0.8)
    found = cmmd(torch.tensor(x), torch.tensor(y), blocks=4)
    assert found["cmmd"] == pytest.approx(direct(x, y), rel=1e-9)
    assert cmmd(torch.tensor(y), torch.tensor(x), blocks=4)["cmmd"] == pytest.approx(found["cmmd"], rel=1e-9)
    block = assign_blocks(20, 4).numpy()
    without = np.array([direct(x[block != b], y) for b in range(4)])
    assert found["cmmd_se"] == pytest.approx(np.sqrt(3 / 4 * ((without - without.mean()) ** 2).sum()), rel=1e-7)


def test_only_the_direction_of_an_embedding_counts() -> None:
    x, y = draw(0, 20), draw(1, 20, 0.8)
    scaled = x * np.random.default_rng(2).uniform(0.1, 10, size=(20, 1))
    assert cmmd(torch.tensor(scaled), torch.tensor(y), 4) == pytest.approx(cmmd(torch.tensor(x), torch.tensor(y), 4))


def test_unbiased_where_both_are_alike() -> None:
    found = [cmmd(torch.tensor(draw(seed, 40)), torch.tensor(draw(seed + 100, 40)), 4)["cmmd"] for seed in range(40)]
    assert abs(np.mean(found)) < 3 * np.std(found) / np.sqrt(40)
    assert min(found) < 0 < max(found)
