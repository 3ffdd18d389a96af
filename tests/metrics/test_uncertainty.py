import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from darkroom.metrics.score import count_blocks
from darkroom.metrics.uncertainty import (
    Jackknife,
    assign_blocks,
    jackknife,
    left_out,
    mean_and_error,
    weighted_mean_and_error,
)


def test_debiases_the_plug_in_variance_exactly() -> None:
    # Known closed form: the delete-one jackknife of Σ(x - x̄)²/n is the unbiased variance.
    x = np.random.default_rng(0).normal(size=30)
    found = jackknife(float(x.var()), [float(np.delete(x, i).var()) for i in range(30)])
    assert found.debiased == pytest.approx(x.var(ddof=1), rel=1e-12)


def test_error_of_a_mean_is_the_standard_error_of_block_means() -> None:
    x = np.random.default_rng(1).normal(size=(10, 7))
    found = jackknife(float(x.mean()), [float(np.delete(x, b, axis=0).mean()) for b in range(10)])
    assert found.se == pytest.approx(x.mean(1).std(ddof=1) / np.sqrt(10), rel=1e-12)
    assert found.debiased == pytest.approx(found.value, rel=1e-12)


@given(st.integers(2, 40), st.integers(0, 300))
def test_blocks_are_even_and_complete(blocks: int, extra: int) -> None:
    sizes = np.bincount(assign_blocks(2 * blocks + extra, blocks))
    assert len(sizes) == blocks and sizes.max() - sizes.min() <= 1


@given(st.integers(2, 12), st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_classes_are_spread_evenly_in_whatever_order_they_come(blocks: int, counts: list[int], seed: int) -> None:
    classes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts) + 1), [*counts, 2 * blocks]))
    block = assign_blocks(len(classes), blocks, torch.from_numpy(classes)).numpy()
    sizes = np.bincount(block, minlength=blocks)
    assert sizes.max() - sizes.min() <= 1
    for number in np.unique(classes):
        of_class = np.bincount(block[classes == number], minlength=blocks)
        assert of_class.max() - of_class.min() <= 1


@pytest.mark.parametrize("classes", [None, torch.zeros(1000, dtype=torch.int64)])
def test_a_block_is_no_stretch_of_the_samples(classes: torch.Tensor | None) -> None:
    block = assign_blocks(1000, 10, classes).numpy()
    assert all(np.flatnonzero(block == b).std() > 200 for b in range(10))  # 289 at random, 29 where they are contiguous
    stretch = np.bincount(block[:100], minlength=10)
    assert stretch.max() < 25 and stretch.std() > 0.5  # nor dealt out in turn


@pytest.mark.parametrize(
    ("samples", "blocks", "count"),
    [(20, 10, 10), (19, 10, 9), (8, 10, 4), (7, 10, 1), (4, 2, 2), (3, 2, 1), (1, 10, 1)],
)
def test_fewer_samples_are_in_fewer_blocks_down_to_one(samples: int, blocks: int, count: int) -> None:
    assert count_blocks(samples, blocks) == count
    assert sorted(set(assign_blocks(samples, blocks).tolist())) == list(range(count))


def test_one_block_and_one_image_have_no_error() -> None:
    assert jackknife(1.0, [1.0 for _ in left_out(1)]) == Jackknife(1.0, None, None)
    assert mean_and_error("psnr", [3.0]) == {"psnr": 3.0}
    assert weighted_mean_and_error("diversity", torch.tensor([3.0]), torch.tensor([1.0])) == {"diversity": 3.0}
