import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.errors import DarkroomError
from darkroom.metrics import moments
from darkroom.metrics.moments import BlockMoments


def sums_of(x: torch.Tensor, block: torch.Tensor, blocks: int, batch: int) -> BlockMoments:
    metric = BlockMoments(x.shape[1], blocks)
    for rows, index in zip(x.split(batch), block.split(batch), strict=True):
        metric.update(rows, index)
    return metric


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 50), st.integers(2, 5))
def test_any_batches_and_blocks_give_numpys_moments(seed: int, batch: int, blocks: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 5)).astype(np.float32)
    block = rng.permutation(np.arange(40) % blocks)
    sums = sums_of(torch.tensor(x), torch.tensor(block), blocks, batch).compute()
    exact = x.astype(np.float64)
    whole = sums.all()
    assert whole.count == 40
    np.testing.assert_allclose(whole.mean, exact.mean(0), atol=1e-12)
    np.testing.assert_allclose(whole.cov, np.cov(exact.T), atol=1e-12)
    for left_out in range(blocks):
        rest = sums.without(left_out)
        np.testing.assert_allclose(rest.mean, exact[block != left_out].mean(0), atol=1e-12)
        np.testing.assert_allclose(rest.cov, np.cov(exact[block != left_out].T), atol=1e-12)


def test_a_large_mean_does_not_drown_the_variance() -> None:
    x = (100 + np.sqrt(0.5) * np.random.default_rng(0).normal(size=(5000, 3))).astype(np.float32)
    found = sums_of(torch.tensor(x), torch.zeros(5000, dtype=torch.int64), 1, 100).compute().all()
    np.testing.assert_allclose(found.cov, np.cov(x.astype(np.float64).T), atol=1e-9)  # float32 sums err by 6e-3


def test_one_block_of_one_feature_keeps_its_shapes() -> None:
    found = sums_of(torch.tensor([[1.0], [3.0]]), torch.zeros(2, dtype=torch.int64), 1, 2).compute().all()
    assert (found.mean.tolist(), found.cov.tolist()) == ([2.0], [[2.0]])


def test_update_is_in_place_and_keeps_no_graph() -> None:
    metric = BlockMoments(8, 2)
    metric.update(torch.ones(3, 8), torch.tensor([0, 1, 1]))
    place = metric.outer.data_ptr()
    metric.update(torch.ones(3, 8, requires_grad=True), torch.tensor([0, 1, 1]))
    metric.compute()
    assert metric.count.tolist() == [2, 4]
    metric.update(torch.ones(600, 8, requires_grad=True), torch.zeros(600, dtype=torch.int64))
    assert metric.count.tolist() == [602, 4]  # so many do not wait
    assert metric.outer.data_ptr() == place and not metric.outer.requires_grad


@pytest.mark.parametrize(
    ("features", "block", "words"),
    [
        (torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64), "do not fit"),
        (torch.zeros(2, 3), torch.zeros(1, dtype=torch.int64), "do not fit"),
        (torch.zeros(2, 3), torch.tensor([0, 2]), "block 2 does not exist"),
        (torch.zeros(2, 3), torch.tensor([-1, 0]), "block -1 does not exist"),
        (torch.tensor([[0.0, 1.0, float("nan")]]), torch.zeros(1, dtype=torch.int64), "not finite"),
    ],
)
def test_what_does_not_fit_is_refused(features: torch.Tensor, block: torch.Tensor, words: str) -> None:
    with pytest.raises(DarkroomError, match=words):
        BlockMoments(3, 2).update(features, block)


def test_too_few_samples_are_refused() -> None:
    metric = BlockMoments(3, 2)
    metric.update(torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(DarkroomError, match="at least 2 samples"):
        metric.compute().all()
    with pytest.raises(DarkroomError, match="block 1 of 2 holds no sample"):
        metric.compute().without(1)


def test_stripes_of_a_wide_matrix_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "_STRIPE", 3)
    monkeypatch.setattr(moments, "_HELD", 10)
    x = torch.tensor(np.random.default_rng(0).normal(size=(40, 8)))
    metric = sums_of(x, torch.zeros(40, dtype=torch.int64), 1, 7)
    for _ in range(2):  # and again, after further rows
        np.testing.assert_allclose(metric.compute().all().cov, np.cov(x.T), atol=1e-12)
        x = torch.cat([x, x[:4] + 1])
        metric.update(x[-4:], torch.zeros(4, dtype=torch.int64))
