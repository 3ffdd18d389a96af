import numpy as np
import pytest
import torch
from torch import Tensor, nn

from darkroom.errors import DarkroomError
from darkroom.metrics import kernel
from darkroom.metrics.kernel import kernel_jackknife, within
from darkroom.metrics.uncertainty import assign_blocks


def direct(x: np.ndarray, y: np.ndarray) -> float:
    """The definition, pair by pair."""

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return (float(a @ b) / len(a) + 1) ** 3

    m, n = len(x), len(y)
    xx = sum(k(x[i], x[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    yy = sum(k(y[i], y[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    return xx + yy - 2 * sum(k(a, b) for a in x for b in y) / (m * n)


def draw(seed: int, n: int, shift: float = 0.0) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, 5)) + shift, dtype=torch.float32)


@pytest.mark.parametrize("rows", [3, 7, 1024])  # tiles smaller than, across and larger than the blocks
def test_agrees_with_the_definition_and_brute_force(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(kernel, "_ROWS", rows)
    x, y = draw(0, 20), draw(1, 23, 0.3)
    block = assign_blocks(23, 4)
    found = kernel_jackknife(x, within(x), y, block)
    exact_x, exact_y = x.double().numpy(), y.double().numpy()
    without = np.array([direct(exact_x, exact_y[(block != b).numpy()]) for b in range(4)])
    assert found.value == pytest.approx(direct(exact_x, exact_y), rel=1e-11)
    assert found.se == pytest.approx(np.sqrt(3 / 4 * ((without - without.mean()) ** 2).sum()), rel=1e-10)


class Given(nn.Module):
    """Features are the pixels, centred."""

    num_features = 12

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).float() / 64 - 2


def test_agrees_with_torchmetrics_where_its_subset_is_everything() -> None:
    from torchmetrics.image.kid import KernelInceptionDistance

    real, fake = (torch.randint(low, 256, (50, 3, 2, 2), dtype=torch.uint8) for low in (0, 60))
    kid = KernelInceptionDistance(feature=Given(), subsets=1, subset_size=50)
    kid.update(real, real=True)
    kid.update(fake, real=False)
    x, y = Given()(real), Given()(fake)
    found = kernel_jackknife(x, within(x), y, assign_blocks(50, 5)).value
    assert found == pytest.approx(float(kid.compute()[0]), rel=1e-3)  # theirs sums in float32


def test_unbiased_and_the_error_is_the_spread() -> None:
    x = draw(0, 300)
    found = [kernel_jackknife(x, within(x), draw(seed, 100), assign_blocks(100, 10)) for seed in range(1, 81)]
    values = np.array([f.value for f in found])
    spread, error = values.std(ddof=1), np.sqrt(np.mean([f.se**2 for f in found]))
    assert abs(values.mean()) < 3 * spread  # the reference is fixed, so its own sampling error stays
    assert values.min() < 0  # a U-statistic of equal laws lies on both sides of 0
    assert 0.7 < error / spread < 1.6


def test_draws_nothing() -> None:
    x, y = draw(0, 20), draw(1, 20)
    before = torch.random.get_rng_state()
    first = kernel_jackknife(x, within(x), y, assign_blocks(20, 5))
    assert torch.equal(before, torch.random.get_rng_state())
    assert first == kernel_jackknife(x, within(x), y, assign_blocks(20, 5))


def test_what_does_not_fit_is_refused() -> None:
    x = draw(0, 20)
    with pytest.raises(DarkroomError, match="of length 3 cannot be compared with a reference of length 5"):
        kernel_jackknife(x, 0.0, x[:, :3], assign_blocks(20, 5))
    with pytest.raises(DarkroomError, match="at least 2 reference images"):
        within(x[:1])
