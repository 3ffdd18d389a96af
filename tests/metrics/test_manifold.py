import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.errors import DarkroomError
from darkroom.metrics import manifold as neighbours
from darkroom.metrics.manifold import centred, manifold, nearest

NAMES = ("precision", "recall", "density", "coverage")


def draw(seed: int, n: int, d: int = 6) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, d)), dtype=torch.float32)


def direct(fake: torch.Tensor, real: torch.Tensor, k: int = 3, k_density: int = 5) -> dict[str, float]:
    """The definitions, from whole matrices of distances."""
    from scipy.spatial.distance import cdist

    x, y = real.double().numpy(), fake.double().numpy()

    def radius(z: np.ndarray, nearest: int) -> np.ndarray:
        return np.sort(cdist(z, z), axis=1)[:, nearest]

    between = cdist(x, y)
    wide = radius(x, k_density)
    return {
        "precision": (between <= radius(x, k)[:, None]).any(0).mean(),
        "recall": (between <= radius(y, k)[None]).any(1).mean(),
        "density": (between < wide[:, None]).sum(0).mean() / k_density,
        "coverage": (between.min(1) < wide).mean(),
    }


@pytest.mark.parametrize("tile", [(3, 5), (1024, 8192)])  # smaller than both sets, and larger
def test_agrees_with_the_definitions(monkeypatch: pytest.MonkeyPatch, tile: tuple[int, int]) -> None:
    monkeypatch.setattr(neighbours, "_ROWS", tile[0])
    monkeypatch.setattr(neighbours, "_COLUMNS", tile[1])
    fake, real = draw(0, 41) * 1.4, draw(1, 57)
    found = manifold(fake, real)
    assert {name: found[name] for name in NAMES} == pytest.approx(direct(fake, real), rel=1e-12)
    assert 0 < found["precision"] < 1 and 0 < found["recall"] < 1  # nothing is decided by a bound
    p = found["precision"]
    assert found["precision_se"] == pytest.approx(np.sqrt(p * (1 - p) / 40))


def test_agrees_with_torch_fidelity() -> None:
    from torch_fidelity.metric_prc import calculate_precision_recall_full

    fake, real = draw(0, 80, 32) * 1.2, draw(1, 90, 32)
    found = manifold(fake, real)
    assert (found["precision"], found["recall"]) == pytest.approx(calculate_precision_recall_full(fake, real))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.floats(-50, 50))
def test_neither_order_nor_place_counts(seed: int, shift: float) -> None:
    fake, real = draw(seed, 30), draw(seed + 1, 40)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(seed))
    moved = manifold(fake[order].double() + shift, real.double() + shift)
    assert moved == pytest.approx(manifold(fake, real), rel=1e-9)
    swapped = manifold(real, fake)
    assert swapped["precision"] == pytest.approx(manifold(fake, real)["recall"])  # the one is the other's mirror


def test_the_right_way_round() -> None:
    """A model that makes one thing well has precision and no recall; one that adds noise the reverse."""
    real = torch.cat([draw(seed, 50) + 20 * seed for seed in range(4)])  # four modes
    collapsed = manifold(draw(9, 200) * 0.5, real)  # the first, and none of the others
    assert collapsed["precision"] > 0.9 and collapsed["density"] > 0.9
    assert collapsed["recall"] < 0.3 and collapsed["coverage"] < 0.3
    spread = manifold(real[torch.randperm(200, generator=torch.Generator().manual_seed(0))] + 6 * draw(8, 200), real)
    assert spread["precision"] < 0.3 and spread["recall"] > 0.9


def test_equal_sets() -> None:
    found = manifold(draw(0, 60), draw(0, 60))
    assert (found["precision"], found["recall"], found["coverage"]) == (1, 1, 1)
    assert found["density"] == pytest.approx(
        1, rel=1e-12
    )  # each ball holds its centre and four: the fifth is its border


def test_nearest_are_found_with_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.spatial.distance import cdist

    monkeypatch.setattr(neighbours, "_ROWS", 4)
    monkeypatch.setattr(neighbours, "_COLUMNS", 3)
    one, two = centred(draw(0, 10), draw(1, 17))
    squares, which = nearest(one, two, 4)
    distances = cdist(one, two)
    assert (which.numpy() == np.argsort(distances, axis=1)[:, :4]).all()
    np.testing.assert_allclose(squares.sqrt(), np.sort(distances, axis=1)[:, :4], rtol=1e-12)
    _, own = nearest(one, one, 2, same=True)
    assert (own != torch.arange(10)[:, None]).all()


def test_what_does_not_work_is_refused() -> None:
    with pytest.raises(DarkroomError, match="4 images are too few to find 5 nearest neighbours"):
        manifold(draw(0, 20), draw(1, 5))
    with pytest.raises(DarkroomError, match="of length 4 cannot be compared with features of length 6"):
        manifold(draw(0, 20, 4), draw(1, 20))
    damaged = draw(0, 20)
    damaged[2, 3] = torch.inf
    with pytest.raises(DarkroomError, match="not finite"):
        manifold(damaged, draw(1, 20))


def test_weights_are_of_real_images_in_recall_and_coverage() -> None:
    """Of a real image that counts for nothing it does not matter whether a sample lies near it."""
    real = torch.cat([draw(0, 30), draw(1, 10) + 100])
    fake = draw(2, 40)
    few = torch.cat([torch.ones(30), torch.zeros(10)]).double() / 30
    plain, weighted = manifold(fake, real), manifold(fake, real, weights=few)
    near = manifold(fake, real[:30])
    assert plain["recall"] <= 0.75 and plain["coverage"] <= 0.75
    for name in ("recall", "coverage"):
        assert weighted[name] == pytest.approx(plain[name] * 40 / 30, rel=1e-12)
        assert weighted[f"{name}_se"] == pytest.approx(near[f"{name}_se"] * np.sqrt(29 / 30), rel=1e-9)
    assert {name: weighted[name] for name in ("precision", "density")} == {
        name: plain[name] for name in ("precision", "density")
    }
