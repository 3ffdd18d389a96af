import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from darkroom.errors import DarkroomError
from darkroom.metrics import frechet
from darkroom.metrics.frechet import (
    covariance_root,
    few_jackknife,
    frechet_distance,
    frechet_jackknife,
    frechet_of_two,
    jackknifed,
)
from darkroom.metrics.moments import BlockSums, Moments, block_sums
from darkroom.metrics.uncertainty import assign_blocks


def fit(x: np.ndarray) -> Moments:
    return Moments(len(x), torch.tensor(x.mean(0)), torch.tensor(np.cov(x.T)))


def distance(x: np.ndarray, y: np.ndarray) -> float:
    reference = fit(x)
    return frechet_distance(reference, covariance_root(reference.cov), fit(y))


def oracle(x: np.ndarray, y: np.ndarray) -> float:
    """Another formula: the eigenvalues of the product S₁ S₂, which is not symmetric."""
    s1, s2 = np.cov(x.T), np.cov(y.T)
    cross = np.sqrt(np.clip(np.linalg.eigvals(s1 @ s2).real, 0, None)).sum()
    return float(((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(s1) + np.trace(s2) - 2 * cross)


def draw(seed: int, n: int = 80, d: int = 6) -> np.ndarray:
    """Correlated features whose scales differ by up to 10; the formula errs by about 1e-16 times their condition."""
    rng = np.random.default_rng(seed)
    mix = np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(0.3, 3, size=d)
    return rng.normal(size=(n, d)) @ mix.T + rng.normal(size=d)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_agrees_with_the_product_formula_and_is_a_distance(seed: int) -> None:
    x, y = draw(seed), draw(seed + 1)
    found = distance(x, y)
    assert found == pytest.approx(oracle(x, y), rel=1e-8)
    assert found > 0
    assert distance(y, x) == pytest.approx(found, rel=1e-9)
    rotation = np.linalg.qr(np.random.default_rng(seed + 2).normal(size=(6, 6)))[0]
    assert distance(x @ rotation, y @ rotation) == pytest.approx(found, rel=1e-9)
    assert distance(x + 3, y + 3) == pytest.approx(found, rel=1e-8)
    assert 0 <= distance(x, x) < 1e-11


def test_closed_form_for_commuting_covariances() -> None:
    one = Moments(9, torch.tensor([0.0, 1.0]).double(), torch.tensor([[4.0, 0], [0, 9]]).double())
    two = Moments(9, torch.tensor([3.0, 1.0]).double(), torch.tensor([[1.0, 0], [0, 16]]).double())
    # |μ₁ - μ₂|² + Σ (σ₁ - σ₂)² = 9 + (2 - 1)² + (3 - 4)²
    assert frechet_distance(one, covariance_root(one.cov), two) == pytest.approx(11, rel=1e-14)


def test_fewer_samples_than_features() -> None:
    x, y = draw(0, 400, 100), draw(1, 30, 100)
    centred = (y - y.mean(0)) / np.sqrt(len(y) - 1)
    values, vectors = np.linalg.eigh(np.cov(x.T))
    root = (vectors * np.sqrt(values)) @ vectors.T
    # Exact N x N form: the cross term is the nuclear norm of S₁^½ Yᵀ.
    cross = np.linalg.svd(root @ centred.T, compute_uv=False).sum()
    exact = ((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(np.cov(x.T)) + np.trace(np.cov(y.T)) - 2 * cross
    assert distance(x, y) == pytest.approx(exact, rel=1e-11)
    assert 0 <= distance(y, y) < 1e-9


class Pixels(nn.Module):
    """Features are the pixels themselves."""

    num_features = 12

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).double()


def test_agrees_with_torchmetrics() -> None:
    from torchmetrics.image.fid import FrechetInceptionDistance

    real, fake = (torch.randint(low, 256, (90, 3, 2, 2), dtype=torch.uint8) for low in (0, 60))
    fid = FrechetInceptionDistance(feature=Pixels(), normalize=False).set_dtype(torch.float64)
    fid.update(real, real=True)
    fid.update(fake, real=False)
    x, y = real.flatten(1).double().numpy(), fake.flatten(1).double().numpy()
    assert distance(x, y) == pytest.approx(float(fid.compute()), rel=1e-9)


def sums(y: np.ndarray, blocks: int) -> BlockSums:
    return block_sums(torch.tensor(y), assign_blocks(len(y), blocks))


def test_jackknife_is_the_brute_force_one() -> None:
    x, y = draw(0, 200), draw(1, 53)
    reference = fit(x)
    found = frechet_jackknife(reference, covariance_root(reference.cov), sums(y, 5))
    block = assign_blocks(53, 5).numpy()
    without = np.array([distance(x, y[block != b]) for b in range(5)])
    assert found.value == pytest.approx(distance(x, y), rel=1e-10)
    assert found.debiased == pytest.approx(5 * distance(x, y) - 4 * without.mean(), rel=1e-8)
    assert found.se == pytest.approx(np.sqrt(4 / 5 * ((without - without.mean()) ** 2).sum()), rel=1e-8)


def test_jackknife_removes_the_bias_and_states_the_error() -> None:
    # A known Gaussian against the standard normal: the true distance is D (σ - 1)² + |μ|².
    d, n, sigma, shift = 16, 500, 1.1, 0.05
    true = d * (sigma - 1) ** 2 + d * shift**2
    reference = Moments(n, torch.zeros(d, dtype=torch.float64), torch.eye(d, dtype=torch.float64))
    rng = np.random.default_rng(0)
    found = [
        frechet_jackknife(reference, reference.cov, sums(sigma * rng.normal(size=(n, d)) + shift, 10))
        for _ in range(60)
    ]
    naive = np.mean([f.value for f in found]) - true
    debiased = np.mean([f.debiased for f in found]) - true
    assert naive > 0.1  # about D (D + 3) σ² / 4n + …: what is to be removed
    assert abs(debiased) < naive / 8
    covered = np.mean([abs(f.debiased - true) < 2.262 * f.se for f in found])  # t, 9 degrees of freedom, 95%
    assert 0.85 <= covered <= 1


def test_another_length_is_refused() -> None:
    reference = fit(draw(0))
    with pytest.raises(DarkroomError, match="of length 4 cannot be compared with a reference of length 6"):
        frechet_distance(reference, reference.cov, fit(draw(0, d=4)))


def exact(x: np.ndarray, y: np.ndarray) -> float:
    """The distance whatever the ranks: the cross term is the nuclear norm of centred X Yᵀ, of no square root at all."""
    one, two = ((z - z.mean(0)) / np.sqrt(len(z) - 1) for z in (x, y))
    cross = np.linalg.svd(one @ two.T, compute_uv=False).sum()
    return float(((x.mean(0) - y.mean(0)) ** 2).sum() + (one**2).sum() + (two**2).sum() - 2 * cross)


def few(x: np.ndarray, y: np.ndarray) -> float:
    reference = fit(x)
    return few_jackknife(reference, covariance_root(reference.cov), torch.tensor(y), torch.zeros(len(y))).value


def test_agrees_with_scipy() -> None:
    from scipy import linalg

    x, y = draw(3, 900, 64), draw(4, 700, 64)
    s1, s2 = np.cov(x.T), np.cov(y.T)
    root = np.trace(linalg.sqrtm(s1 @ s2)).real
    found = float(((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(s1) + np.trace(s2) - 2 * root)
    assert distance(x, y) == pytest.approx(found, rel=1e-9)
    assert few(x, y) == pytest.approx(found, rel=1e-9)  # the small form holds for many samples too
    assert frechet_of_two(torch.tensor(x), torch.tensor(y)) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize(("n", "m"), [(400, 30), (30, 400), (40, 30), (30, 30)])
def test_the_small_form_is_exact(n: int, m: int) -> None:
    x, y = draw(0, n, 100), draw(1, m, 100)
    found = frechet_of_two(torch.tensor(x), torch.tensor(y))
    assert found == pytest.approx(exact(x, y), rel=1e-12)
    assert few(x, y) == pytest.approx(found, rel=1e-9)
    assert frechet_of_two(torch.tensor(y), torch.tensor(x)) == pytest.approx(found, rel=1e-12)
    order = np.random.default_rng(2).permutation(m)
    assert few(x, y[order]) == pytest.approx(few(x, y), rel=1e-12)
    assert 0 <= frechet_of_two(torch.tensor(x), torch.tensor(x)) < 1e-9


def test_the_small_jackknife_is_the_brute_force_one() -> None:
    x, y = draw(0, 200, 40), draw(1, 23, 40)
    reference, block = fit(x), assign_blocks(23, 4)
    found = few_jackknife(reference, covariance_root(reference.cov), torch.tensor(y), block)
    without = np.array([exact(x, y[(block != b).numpy()]) for b in range(4)])
    assert found.value == pytest.approx(exact(x, y), rel=1e-9)
    assert found.debiased == pytest.approx(4 * exact(x, y) - 3 * without.mean(), rel=1e-8)
    assert found.se == pytest.approx(np.sqrt(3 / 4 * ((without - without.mean()) ** 2).sum()), rel=1e-8)
    with pytest.raises(DarkroomError, match="of length 4 cannot be compared with a reference of length 40"):
        few_jackknife(reference, reference.cov, torch.tensor(y[:, :4]), block)


@pytest.mark.parametrize("images", [40, 300])
def test_both_forms_are_one_score(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, samples = fit(draw(0, 400, 48)), torch.tensor(draw(1, images, 48))
    root, block = covariance_root(reference.cov), assign_blocks(images, 10)
    found = jackknifed(reference, root, samples, block)
    other = frechet_jackknife(reference, root, block_sums(samples, block))
    assert found.value == pytest.approx(other.value, rel=1e-9)
    assert found.debiased == pytest.approx(other.debiased, rel=1e-7)
    assert found.se == pytest.approx(other.se, rel=1e-7)
    monkeypatch.setattr(frechet, "few_jackknife" if images > 48 else "frechet_jackknife", None)  # is not called
    assert jackknifed(reference, root, samples, block) == found


@pytest.mark.parametrize("images", [40, 300])
def test_features_that_are_not_finite_are_refused(images: int) -> None:
    reference, samples = fit(draw(0, 400, 48)), torch.tensor(draw(1, images, 48))
    samples[3, 5] = float("nan")
    with pytest.raises(DarkroomError, match="features hold a value that is not finite"):
        jackknifed(reference, covariance_root(reference.cov), samples, assign_blocks(images, 10))
