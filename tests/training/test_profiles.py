"""Power-function averages: their formula, and their snapshots."""

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
from darkroom.training.ema import EMA
from darkroom.training.profiles import Profiles, export, snapshot_images
from helpers import training


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
    profiles = Profiles({"net": net}, [0.05, 0.2])
    seen = []
    for step in range(40):
        walk(net, step)
        profiles.update(step)
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
        found = profiles.state[repr(width)]["net"]
        assert torch.allclose(found["one.weight"].double(), expected, atol=1e-5)
        assert torch.equal(found["one.weight"], found["two.weight"])  # shared: averaged under both names


def test_buffers_and_counters_are_copied():
    net = Net()
    profiles = Profiles({"net": net}, [0.1])
    for step in range(3):
        walk(net, step)
        profiles.update(step)
    assert torch.equal(profiles.state["0.1"]["net"]["norm.running_mean"], net.norm.running_mean)
    assert profiles.state["0.1"]["net"]["norm.num_batches_tracked"] == 3


def test_the_constant_decay_averages_shared_weights_under_each_name():
    net = Net()
    ema = EMA({"net": net}, 0.9)
    for step in range(3):
        walk(net, step)
        ema.update(step)
    assert torch.equal(ema.state["net"]["one.weight"], ema.state["net"]["two.weight"])
    assert not torch.equal(ema.state["net"]["one.weight"], net.one.weight)


def test_the_first_update_replaces_the_initial_weights():
    net = Net()
    profiles = Profiles({"net": net}, [0.05])
    walk(net, 0)
    profiles.update(0)
    assert torch.equal(profiles.state["0.05"]["net"]["one.weight"], net.one.weight)


def test_without_widths_nothing_is_kept_or_written(tmp_path):
    profiles = Profiles({"net": Net()}, [])
    profiles.update(0)
    profiles.snapshot(tmp_path / "state", 8)
    export(tmp_path / "state", "net", tmp_path / "out", training())
    assert profiles.state == {} and list(tmp_path.iterdir()) == []


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 40))
def test_snapshots_are_spread_evenly_and_the_end_is_one(updates, batch, count):
    """As many as asked for, or every update; each within one batch after its even place."""
    settings = training(images=updates * batch, batch=batch, ema_snapshots=count)
    places = [
        after for after in range(batch, updates * batch + 1, batch)
        if Profiles.due(after - batch, after, updates * batch, count)
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
    profiles = Profiles(modules, SETTINGS.ema_profiles)
    first, kept = 0, None
    if start:
        first, weights, averages = start
        modules["net"].load_state_dict(weights)
        for name, states in averages.items():
            for module, tensors in states.items():
                for key, value in tensors.items():
                    profiles.state[name][module][key].copy_(value)
    for update in range(first, 8):
        walk(modules["net"], update)
        profiles.update(update)
        if update == 4:
            averages = {
                name: {m: {k: v.clone() for k, v in s.items()} for m, s in states.items()}
                for name, states in profiles.state.items()
            }
            kept = 5, {key: value.clone() for key, value in modules["net"].state_dict().items()}, averages
        if Profiles.due(update * 8, update * 8 + 8, 64, 4):
            profiles.snapshot(state, update * 8 + 8)
    return profiles, kept


def test_a_snapshot_is_the_state_at_its_time_with_a_manifest(tmp_path):
    profiles, _ = trained(tmp_path)
    names = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert names == [f"images-{images:012d}" for images in (16, 32, 48, 64)]
    newest = tmp_path / "snapshots" / names[-1]
    assert open_artifact(newest, "profiles_snapshot")["images"] == 64
    for width in ("0.1", "0.05"):
        for module in ("net", "critic"):
            found = load_file(newest / module / f"{width}.safetensors")
            assert found.keys() == profiles.state[width][module].keys()
            assert all(torch.equal(value, profiles.state[width][module][key]) for key, value in found.items())


def test_a_training_that_continues_writes_the_same_bytes_again(tmp_path):
    _, kept = trained(tmp_path / "whole")
    trained(tmp_path / "killed")
    trained(tmp_path / "killed", kept)
    assert files(tmp_path / "whole") == files(tmp_path / "killed")


def test_export_holds_one_module_with_its_hashes(tmp_path):
    trained(tmp_path / "state")
    export(tmp_path / "state", "net", tmp_path / "one", SETTINGS)
    export(tmp_path / "state", "net", tmp_path / "two", SETTINGS)
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
        export(tmp_path / "state", "net", tmp_path / "out", SETTINGS)
    assert not (tmp_path / "out").exists()
