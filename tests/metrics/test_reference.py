from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics.measure import distances
from darkroom.metrics.reference import Reference, build_reference, frechet_between, moments_of


def draw(seed: int, n: int, shift: float = 0.0) -> Tensor:
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed)) + shift


def build(x: Tensor, batch: int = 32, kid_images: int = 40) -> Reference:
    return build_reference("in_domain", "ab" * 32, x.split(batch), len(x), kid_images)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return build(draw(0, 150))


def test_statistics_are_numpys(reference: Reference) -> None:
    x = draw(0, 150).double().numpy()
    assert reference.n == 150
    np.testing.assert_allclose(reference.mean, x.mean(0), atol=1e-13)
    np.testing.assert_allclose(reference.cov, np.cov(x.T), atol=1e-13)
    np.testing.assert_allclose(moments_of(draw(0, 150)).cov, reference.cov, atol=1e-15)
    np.testing.assert_allclose(reference.root @ reference.root, reference.cov, atol=1e-13)


@pytest.mark.parametrize("batch", [1, 7, 150])
def test_kernel_features_are_drawn_whatever_the_batches(batch: int) -> None:
    x = draw(0, 150)
    assert torch.equal(build(x, batch).kid_features, x[sorted(drawn(150, 40))])
    assert torch.equal(build(x, batch, kid_images=1000).kid_features, x)


def test_round_trip_gives_equal_values_and_bytes(reference: Reference, tmp_path: Path) -> None:
    path = reference.save(tmp_path)
    assert path == tmp_path / "in_domain.safetensors"
    first = path.read_bytes()
    again = Reference.load(tmp_path, "in_domain", "ab" * 32)
    assert (again.n, again.sha256, again.kid_within) == (150, "ab" * 32, reference.kid_within)
    for name in ("mean", "cov", "root", "kid_features"):
        assert torch.equal(getattr(again, name), getattr(reference, name))
        assert getattr(again, name).dtype == getattr(reference, name).dtype
    assert again.save(tmp_path).read_bytes() == first


def test_distances_tell_sets_apart(reference: Reference) -> None:
    near, far = distances(draw(1, 200), reference, 5), distances(draw(2, 200, 0.5), reference, 5)
    assert list(near) == ["fd", "fd_debiased", "fd_se", "kid", "kid_se"]
    assert all(type(value) is float for value in near.values())
    assert far["fd_debiased"] - near["fd_debiased"] > 5 * (far["fd_se"] + near["fd_se"])
    assert far["kid"] - near["kid"] > 5 * (far["kid_se"] + near["kid_se"])
    assert near["fd"] > near["fd_debiased"]


def test_what_cannot_be_read_is_named(reference: Reference, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"inception\.safetensors is missing.*reference_stats\.extractors"):
        Reference.load(tmp_path, "inception")
    path = reference.save(tmp_path)
    with pytest.raises(ArtifactError, match="made with weights abababababab…, but in_domain now has cdcdcdcdcdcd"):
        Reference.load(tmp_path, "in_domain", "cd" * 32)
    tensors = load_file(path)
    save_file({name: value for name, value in tensors.items() if name != "root"}, path)
    with pytest.raises(ArtifactError, match="is damaged"):
        Reference.load(tmp_path, "in_domain")
    path.write_bytes(b"\x00" * 20)
    with pytest.raises(ArtifactError, match="damaged"):
        Reference.load(tmp_path, "in_domain")


def test_counts_must_agree() -> None:
    with pytest.raises(DarkroomError, match="the reference received 20 images, but the index lists 30"):
        build_reference("in_domain", "ab", [draw(0, 20)], 30, 10)
    with pytest.raises(DarkroomError, match="at least 2 images"):
        build_reference("in_domain", "ab", [draw(0, 1)], 1, 10)


@pytest.mark.parametrize(
    ("samples", "names"), [(8, ["fd", "fd_debiased", "fd_se", "kid", "kid_se"]), (7, ["fd", "kid"])]
)
def test_too_few_samples_have_distances_without_errors(reference: Reference, samples: int, names: list[str]) -> None:
    assert list(distances(draw(1, samples), reference, 5)) == names


@pytest.mark.parametrize(("n", "m"), [(30, 30), (5, 4), (30, 4)])
def test_between_two_sets_is_one_distance_in_either_form(n: int, m: int) -> None:
    draws = np.random.default_rng(n)
    x, y = (torch.tensor(draws.normal(size=(count, 6)), dtype=torch.float32) for count in (n, m))
    s, t = np.cov(x.double().numpy().T), np.cov(y.double().numpy().T)
    values, vectors = np.linalg.eigh(s)
    root = vectors * np.sqrt(values.clip(min=0)) @ vectors.T
    cross = np.sqrt(np.linalg.eigvalsh(root @ t @ root).clip(min=0)).sum()
    means = float((x.double().mean(0) - y.double().mean(0)).square().sum())
    assert frechet_between(x, y) == pytest.approx(means + np.trace(s) + np.trace(t) - 2 * cross, rel=1e-6)
    assert frechet_between(x, x) == pytest.approx(0, abs=1e-6)
    y[0, 0] = torch.nan
    with pytest.raises(DarkroomError, match="not finite"):
        frechet_between(x, y)
