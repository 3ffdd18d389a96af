"""Averages of weights: parameters averaged, buffers copied; power-function profiles, their formula and snapshots."""

import hashlib
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from darkroom.artifacts.manifest import open_artifact
from darkroom.errors import DarkroomError
from darkroom.training.averages import (
    Average,
    constant_decay,
    exponent,
    export_snapshots,
    power_decay,
    product,
    snapshot_due,
    snapshot_images,
    write_snapshot,
)
from helpers import training

WIDTHS = st.floats(0.005, 0.279)


class Counting(nn.Module):
    """Two names for one weight, and a buffer that is another tensor after each pass."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)
        self.other.weight = self.one.weight
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.passes = self.passes + 1
        return self.other(self.one(x))


def test_shared_weights_are_averaged_under_both_names_and_buffers_are_those_of_now():
    module = Counting()
    average = Average({"net": module}, constant_decay(0.5))
    first = module.one.weight.detach().clone()
    with torch.no_grad():
        module(torch.ones(1, 2))
        module.one.weight += 1.0
    average.update(100)
    state = average.state["net"]
    for name in ("one.weight", "other.weight"):
        assert torch.allclose(state[name], first + 0.5)
    assert state["passes"] == 1
    module(torch.ones(1, 2))
    average.update(101)
    assert average.state["net"]["passes"] == 2


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [0.1, 2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15]),
        ({"warmup": False}, [0.9] * 6),
        ({"start": 2}, [0, 0, 0.1, 2 / 11, 3 / 12, 4 / 13]),
        ({"every": 2}, [0.1, 1, 2 / 11, 1, 3 / 12, 1]),
        ({"warmup": False, "start": 1, "every": 3}, [0, 0.9, 1, 1, 0.9, 1]),
    ],
)
def test_the_decay_of_each_step(keys, expected):
    decay = constant_decay(0.9, **keys)
    assert [decay(step) for step in range(6)] == pytest.approx(expected)
    assert decay(10_000) in (0.9, 1.0)


def test_an_average_waits_and_begins_with_the_weights_of_its_start():
    module = nn.Linear(1, 1, bias=False)
    average = Average({"net": module}, constant_decay(0.5, warmup=False, start=2, every=2))
    found = []
    for step in range(6):
        with torch.no_grad():
            module.weight.fill_(step)
        average.update(step)
        found.append(average.state["net"]["weight"].item())
    assert found == [0, 1, 1.5, 1.5, 2.75, 2.75]


@pytest.mark.parametrize("other", [False, True])
def test_applied_gives_the_averages_and_takes_them_back(other):
    module = nn.Linear(1, 1)
    average = Average({"net": module}, constant_decay(0.0))
    given = {"net": {key: value + 3 for key, value in average.state["net"].items()}} if other else None
    expected = {key: value.clone() for key, value in (given or average.state)["net"].items()}
    with torch.no_grad():
        module.weight += 1
    own = module.weight.detach().clone()
    with pytest.raises(ValueError), average.applied(given):
        assert torch.equal(module.weight, expected["weight"])
        raise ValueError
    assert torch.equal(module.weight, own)


def mean_of(function, gamma, time=1.0):
    """∫ function(s) p(s) ds by Gauss-Jacobi quadrature, whose weight (1 + x)^γ is the profile."""
    from scipy.special import roots_jacobi

    nodes, weights = roots_jacobi(60, 0.0, gamma)
    return float(weights @ function(time * (nodes + 1) / 2) / weights.sum())


@pytest.mark.parametrize(("width", "expected"), [(0.05, 16.97), (0.10, 6.94)])
def test_exponents_are_those_of_the_paper(width, expected):
    assert exponent(width) == pytest.approx(expected, abs=0.005)


@given(WIDTHS)
def test_a_width_is_the_standard_deviation_of_its_profile(width):
    """By quadrature, to 1e-8: around the mean, so that nothing cancels."""
    gamma = exponent(width)
    mean = mean_of(lambda s: s, gamma)
    assert np.sqrt(mean_of(lambda s: (s - mean) ** 2, gamma)) == pytest.approx(width, rel=1e-8)


@given(WIDTHS, st.integers(1, 300))
def test_the_weights_of_an_average_are_the_profile_and_sum_to_one(width, updates):
    """Unrolled: what update k leaves after the decays that follow is the integral of p over its piece."""
    gamma, decay = exponent(width), power_decay(width)
    weights = np.zeros(updates)
    for update in range(updates):
        weights *= decay(update)
        weights[update] = 1 - decay(update)
    powers = (np.arange(updates + 1) / updates) ** (gamma + 1)
    assert weights.sum() == pytest.approx(1, rel=1e-12)
    assert np.allclose(weights, np.diff(powers), atol=1e-12)


@given(WIDTHS, WIDTHS, st.floats(1, 1e6), st.floats(1, 1e6))
def test_the_product_is_the_integral_whatever_the_order(one, other, time, later):
    """Against quadrature over the shorter profile, (γ + 1) s^γ / t^(γ + 1) the integrand: to 1e-6 of the norms."""
    first, second = sorted([(time, exponent(one)), (later, exponent(other))])
    (t, g), (u, h) = first, second
    quadrature = mean_of(lambda s: (h + 1) * (s / u) ** h / u, g, t)
    found = float(product(t, g, u, h))
    norm = np.sqrt(float(product(t, g, t, g)) * float(product(u, h, u, h)))
    assert found == float(product(u, h, t, g)) == pytest.approx(quadrature, abs=1e-6 * norm)


class Net(nn.Module):
    """Parameters, one of them shared, a statistic and a counter."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
        self.two.weight = self.one.weight
        self.norm = nn.BatchNorm1d(3)


def walk(net, step):
    """Move every weight and every statistic at random, by a step that follows from its number."""
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for value in [*net.parameters(), net.norm.running_mean]:
            value.add_(torch.randn(value.shape, generator=generator))
        net.norm.num_batches_tracked.add_(1)


def files(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_average_is_the_papers_sum():
    """Against Σ_k w_k (k^(γ+1) - (k-1)^(γ+1)) / T^(γ+1) in float64, γ by bisection: within 1e-5 of weights near 5."""
    net = Net()
    profiles = {width: Average({"net": net}, power_decay(width)) for width in (0.05, 0.2)}
    seen = []
    for step in range(40):
        walk(net, step)
        for average in profiles.values():
            average.update(step)
        seen.append(net.one.weight.detach().double().clone())
    for width in (0.05, 0.2):
        low, high = 0.0, 1000.0
        for _ in range(100):
            middle = (low + high) / 2
            wide = (middle + 1) / ((middle + 2) ** 2 * (middle + 3)) > width**2
            low, high = (middle, high) if wide else (low, middle)
        powers = np.arange(41.0) ** (low + 1)
        shares = np.diff(powers) / powers[-1]
        expected = sum(share * weight for share, weight in zip(shares, seen, strict=True))
        found = profiles[width].state["net"]
        assert torch.allclose(found["one.weight"].double(), expected, atol=1e-5)
        assert torch.equal(found["one.weight"], found["two.weight"])  # shared: averaged under both names


def test_buffers_and_counters_are_copied():
    net = Net()
    average = Average({"net": net}, power_decay(0.1))
    for step in range(3):
        walk(net, step)
        average.update(step)
    assert torch.equal(average.state["net"]["norm.running_mean"], net.norm.running_mean)
    assert average.state["net"]["norm.num_batches_tracked"] == 3


def test_the_first_update_replaces_the_initial_weights():
    net = Net()
    average = Average({"net": net}, power_decay(0.05))
    walk(net, 0)
    average.update(0)
    assert torch.equal(average.state["net"]["one.weight"], net.one.weight)


def test_without_widths_nothing_is_written(tmp_path):
    assert not snapshot_due(0, training().images, training())
    export_snapshots(tmp_path / "state", "net", tmp_path / "out", training())
    assert list(tmp_path.iterdir()) == []


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 40))
def test_snapshots_are_spread_evenly_and_the_end_is_one(updates, batch, count):
    """As many as asked for, or every update; each within one batch after its even place."""
    settings = training(images=updates * batch, batch=batch, ema_snapshots=count, ema_profiles=[0.1])
    places = [
        after for after in range(batch, updates * batch + 1, batch)
        if snapshot_due(after - batch, after, settings)
    ]  # fmt: skip
    assert places == snapshot_images(settings) and places[-1] == updates * batch
    assert len(places) == min(updates, count)
    if count <= updates:
        even = [(number + 1) * updates * batch / count for number in range(count)]
        assert all(0 <= place - wanted < batch for place, wanted in zip(places, even, strict=True))


SETTINGS = training(images=64, batch=8, ema_profiles=[0.1, 0.05], ema_snapshots=4)


def trained(state, start=None):
    """8 updates of two modules with their snapshots; `start` = (update, weights, averages) continues there."""
    torch.manual_seed(0)
    modules = {"net": Net(), "critic": nn.Linear(2, 1)}
    profiles = {width: Average(modules, power_decay(width)) for width in SETTINGS.ema_profiles}
    first, kept = 0, None
    if start:
        first, weights, averages = start
        modules["net"].load_state_dict(weights)
        for width, states in averages.items():
            for module, tensors in states.items():
                for key, value in tensors.items():
                    profiles[width].state[module][key].copy_(value)
    for update in range(first, 8):
        walk(modules["net"], update)
        for average in profiles.values():
            average.update(update)
        if update == 4:
            averages = {width: average.copy() for width, average in profiles.items()}
            kept = 5, {key: value.clone() for key, value in modules["net"].state_dict().items()}, averages
        if snapshot_due(update * 8, update * 8 + 8, SETTINGS):
            write_snapshot(state, update * 8 + 8, modules, profiles)
    return profiles, kept


def test_a_snapshot_is_the_state_at_its_time_with_a_manifest(tmp_path):
    profiles, _ = trained(tmp_path)
    names = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert names == [f"images-{images:012d}" for images in (16, 32, 48, 64)]
    newest = tmp_path / "snapshots" / names[-1]
    assert open_artifact(newest, "profiles_snapshot")["images"] == 64
    for width, average in profiles.items():
        for module in ("net", "critic"):
            found = load_file(newest / module / f"{width}.safetensors")
            assert found.keys() == average.state[module].keys()
            assert all(torch.equal(value, average.state[module][key]) for key, value in found.items())


def test_a_training_that_continues_writes_the_same_bytes_again(tmp_path):
    _, kept = trained(tmp_path / "whole")
    trained(tmp_path / "killed")
    trained(tmp_path / "killed", kept)
    assert files(tmp_path / "whole") == files(tmp_path / "killed")


def test_export_holds_one_module_with_its_hashes(tmp_path):
    trained(tmp_path / "state")
    export_snapshots(tmp_path / "state", "net", tmp_path / "one", SETTINGS)
    export_snapshots(tmp_path / "state", "net", tmp_path / "two", SETTINGS)
    found = files(tmp_path / "one")
    assert found == files(tmp_path / "two") and len(found) == 9
    manifest = open_artifact(tmp_path / "one", "profiles")
    assert manifest["snapshots"] == [16, 32, 48, 64] and manifest["widths"] == [0.05, 0.1]
    assert manifest["copied"] == ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]
    for name, sha256 in manifest["files"].items():
        assert hashlib.sha256(found[name]).hexdigest() == sha256


@pytest.mark.parametrize("fault", ["flipped", "file", "folder", "manifest"])
def test_export_refuses_a_snapshot_that_is_damaged_or_missing(tmp_path, fault):
    trained(tmp_path / "state")
    folder = tmp_path / "state" / "snapshots" / "images-000000000032"
    path = folder / "net" / "0.05.safetensors"
    if fault == "flipped":
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    elif fault == "file":
        path.unlink()
    elif fault == "folder":
        shutil.rmtree(folder)
    else:
        (folder / "manifest.json").unlink()
    with pytest.raises(
        DarkroomError, match=r"images-000000000032 .*missing or damaged: remove .*state and train again"
    ):
        export_snapshots(tmp_path / "state", "net", tmp_path / "out", SETTINGS)
    assert not (tmp_path / "out").exists()
