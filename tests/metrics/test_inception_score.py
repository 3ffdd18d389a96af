import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.errors import DarkroomError
from darkroom.metrics.inception_score import InceptionScore


def logits(seed: int, n: int = 60, classes: int = 7) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, classes)) * 4, dtype=torch.float32)


def direct(values: torch.Tensor) -> float:
    z = values.double().numpy()
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return float(np.exp((p * (np.log(p) - np.log(p.mean(0)))).sum(1).mean()))


def score(values: torch.Tensor, blocks: int, batch: int) -> InceptionScore:
    block = torch.arange(len(values)) * blocks // len(values)
    metric = InceptionScore(values.shape[1], blocks)
    for rows, index in zip(values.split(batch), block.split(batch), strict=True):
        metric.update(rows, index)
    return metric


def test_agrees_with_the_definition_and_with_torch_fidelity() -> None:
    from torch_fidelity.metric_isc import isc_features_to_metric

    values = logits(0)
    metric = score(values, 5, 60)
    assert metric.compute().value == pytest.approx(direct(values), rel=1e-12)
    theirs = isc_features_to_metric(values, splits=5, shuffle=False)
    mean, error = metric.splits()
    assert mean == pytest.approx(theirs["inception_score_mean"], rel=1e-12)
    assert error * np.sqrt(5) == pytest.approx(theirs["inception_score_std"], rel=1e-10)
    block = torch.arange(60) * 5 // 60
    without = np.array([direct(values[block != b]) for b in range(5)])
    assert metric.compute().se == pytest.approx(np.sqrt(4 / 5 * ((without - without.mean()) ** 2).sum()), rel=1e-9)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 60), st.integers(1, 59))
def test_neither_batches_nor_parts_nor_order_count(seed: int, batch: int, cut: int) -> None:
    values = logits(seed)
    whole = score(values, 1, 60)
    block = torch.zeros(60, dtype=torch.int64)
    parts = InceptionScore(7)
    parts.update(values[:cut], block[:cut])
    parts.update(values[cut:], block[cut:])
    shuffled = score(values[torch.randperm(60, generator=torch.Generator().manual_seed(seed))], 1, batch)
    for other in (score(values, 1, batch), parts, shuffled):
        torch.testing.assert_close(other.total, whole.total, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(other.negative, whole.negative, rtol=1e-12, atol=0)
        assert torch.equal(other.count, whole.count)


def test_the_bounds() -> None:
    sure = score(100 * torch.eye(10).repeat(20, 1), 10, 64)  # each class as often, each image of one
    assert sure.compute().value == pytest.approx(10, rel=1e-9)
    one_class = score(100 * torch.eye(10)[:1].repeat(200, 1), 10, 64)
    assert one_class.compute().value == pytest.approx(1, rel=1e-9)


def test_what_does_not_work_is_refused() -> None:
    values = logits(0)
    values[3, 2] = torch.nan
    with pytest.raises(DarkroomError, match="not finite"):
        score(values, 2, 60)
    with pytest.raises(DarkroomError, match="too few for 3 blocks"):
        InceptionScore(7, 3).compute()
