"""Widths rebuilt after the training, against averages tracked while it ran."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch import nn

from darkroom.errors import DarkroomError
from darkroom.training.averages import (
    MAX_RESIDUAL,
    Average,
    coefficients,
    exponent,
    export_snapshots,
    power_decay,
    reconstruct,
    snapshot_due,
    write_snapshot,
)
from helpers import training

KEPT = (0.05, 0.1)
WIDTHS = (0.03, 0.04, 0.06, 0.075, 0.125, 0.15, 0.2, 0.25)  # not kept, tracked beside in float64
UPDATES, BATCH = 1600, 4


class Walker(nn.Module):
    """1,000 weights near 3 that walk at random, a statistic, and a counter."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.full((1000,), 3.0))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("steps", torch.tensor(0))


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """A walk: the exported snapshots of two widths, and averages of all widths tracked in float64 at half and end."""
    folder = tmp_path_factory.mktemp("walk")
    settings = training(images=UPDATES * BATCH, batch=BATCH, ema_profiles=list(KEPT), ema_snapshots=16)
    net = Walker()
    profiles = {width: Average({"net": net}, power_decay(width)) for width in KEPT}
    draws = np.random.default_rng(0).standard_normal((UPDATES, 1000)) * 0.01
    tracked = {width: np.zeros(1000) for width in (*KEPT, *WIDTHS)}
    states, expected, own = {}, {}, {}
    for update in range(UPDATES):
        with torch.no_grad():
            net.weights.add_(torch.from_numpy(draws[update]))
            net.mean.fill_(update)
            net.steps.add_(1)
        for average in profiles.values():
            average.update(update)
        weights = net.weights.detach().double().numpy()
        for width, followed in tracked.items():
            fraction = 1 - (1 - 1 / (update + 1)) ** (exponent(width) + 1)
            followed += fraction * (weights - followed)
        images = (update + 1) * BATCH
        if snapshot_due(images - BATCH, images, settings):
            write_snapshot(folder / "state", images, {"net": net}, profiles)
        if update + 1 in (UPDATES // 2, UPDATES):
            states[images] = {width: average.state["net"]["weights"].clone() for width, average in profiles.items()}
            expected[images] = {width: followed.copy() for width, followed in tracked.items()}
            own[images] = weights.copy()
    export_snapshots(folder / "state", "net", folder / "profiles", settings)
    return folder / "profiles", states, expected, own


@pytest.mark.parametrize("width", KEPT)
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_kept_width_returns_its_average(walked, width, share):
    """To the rounding of float32, at any snapshot: 2^-22 is one unit in the last place of weights near 3."""
    folder, states, *_ = walked
    images = int(UPDATES * BATCH * share)
    found = reconstruct(folder, width, images)["weights"]
    assert torch.allclose(found, states[images][width], rtol=0, atol=2**-22)
    if share == 1.0:
        assert torch.equal(found, reconstruct(folder, width)["weights"])


@pytest.mark.parametrize(
    ("width", "share", "bound"),
    [
        (0.03, 1.0, 2e-2),
        (0.04, 1.0, 4e-3),
        (0.06, 1.0, 1e-3),
        (0.075, 1.0, 1e-3),
        (0.125, 1.0, 5e-4),
        (0.15, 1.0, 1e-3),
        (0.2, 1.0, 5e-3),
        (0.25, 1.0, 3e-2),
        (0.04, 0.5, 3e-2),
        (0.075, 0.5, 5e-3),
        (0.125, 0.5, 5e-3),
        (0.2, 0.5, 3e-2),
    ],
)
def test_another_width_is_the_average_that_would_have_been_tracked(walked, width, share, bound):
    """The error as a share of the way from the weights to their average, which is what averaging does.

    Bounds are about twice what was measured; at half the training 8 of the 16 snapshots are there.
    """
    folder, _, tracked, own = walked
    images = int(UPDATES * BATCH * share)
    expected = tracked[images][width]
    error = reconstruct(folder, width, images)["weights"].double().numpy() - expected
    assert np.sqrt(np.mean(error**2)) <= bound * np.sqrt(np.mean((expected - own[images]) ** 2))


def test_buffers_are_those_of_the_snapshot_and_dtypes_stay(walked):
    folder = walked[0]
    found = reconstruct(folder, 0.07)
    assert found["steps"] == UPDATES and found["steps"].dtype == torch.int64
    assert torch.equal(found["mean"], torch.full((4,), UPDATES - 1.0)) and found["weights"].dtype == torch.float32
    assert reconstruct(folder, 0.07, UPDATES * BATCH // 2)["steps"] == UPDATES // 2
    net = Walker()
    net.load_state_dict(found)


def test_what_all_weights_share_is_kept():
    """Coefficients sum to 1 to 1e-12, also where the paper's free least squares leaves 2%."""
    times, gammas = np.repeat(np.arange(1.0, 17) / 16, 2), np.tile([exponent(width) for width in KEPT], 16)
    for width in (0.02, 0.05, 0.15, 0.25, 0.275):
        assert coefficients(times, gammas, 1.0, exponent(width))[0].sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("count", [4, 16])
@pytest.mark.parametrize("width", [0.03, 0.15, 0.25])
def test_the_coefficients_are_the_best_on_a_fine_grid(count, width):
    """Against least squares over 20,000 pieces of the profiles: the same residual to 1e-3, and no sum is nearer."""
    times, gammas = np.repeat(np.arange(1.0, count + 1) / count, 2), np.tile([exponent(w) for w in KEPT], count)
    edges = np.linspace(0, 1, 20_001)

    def pieces(time, gamma):
        return np.diff(np.minimum(edges / time, 1) ** (gamma + 1))

    kept = np.stack([pieces(time, gamma) for time, gamma in zip(times, gammas, strict=True)])
    wanted = pieces(1.0, exponent(width))
    found, residual = coefficients(times, gammas, 1.0, exponent(width))
    miss = np.linalg.norm(found @ kept - wanted) / np.linalg.norm(wanted)
    assert residual == pytest.approx(miss, rel=1e-3)
    # The sum is fixed: move along directions that keep it.
    directions = kept[1:] - kept[:1]
    best = np.linalg.lstsq(directions.T, wanted - kept[0], rcond=None)[0]
    least = np.linalg.norm(kept[0] + best @ directions - wanted) / np.linalg.norm(wanted)
    assert miss == pytest.approx(least, rel=1e-3)


def test_without_snapshots_the_parameter_is_named(tmp_path):
    with pytest.raises(DarkroomError, match=r"profiles is missing.*ema_profiles"):
        reconstruct(tmp_path / "profiles", 0.1)


@pytest.mark.parametrize("width", [0.015, 0.275])
def test_a_width_out_of_reach_is_refused_with_its_residual(walked, width):
    with pytest.raises(
        DarkroomError, match=rf"sigma_rel {width} cannot be.*residual is 0\.\d+ \(at most {MAX_RESIDUAL}"
    ):
        reconstruct(walked[0], width)


def test_coefficients_that_would_show_the_rounding_are_refused(walked, tmp_path, monkeypatch):
    """Three widths say more about 0.015 than two, with a sum of sizes of 550: allowed at 1000, not at 500."""
    times, gammas = np.repeat(np.arange(1.0, 17) / 16, 3), np.tile([exponent(w) for w in (0.05, 0.1, 0.15)], 16)
    found, residual = coefficients(times, gammas, 1.0, exponent(0.015))
    assert residual < MAX_RESIDUAL and 500 < np.abs(found).sum() < 600
    monkeypatch.setattr("darkroom.training.averages.MAX_GAIN", 1.0)
    with pytest.raises(DarkroomError, match=r"coefficients' sizes 1\.\d+ \(at most 1\)"):
        reconstruct(walked[0], 0.075)


def test_a_flipped_byte_and_a_time_before_all_snapshots_are_refused(walked, tmp_path):
    folder = tmp_path / "profiles"
    shutil.copytree(walked[0], folder)
    with pytest.raises(DarkroomError, match=r"has no snapshot up to image 10: the first is at "):
        reconstruct(folder, 0.1, 10)
    path = folder / next(iter(json.loads((folder / "manifest.json").read_text())["files"]))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DarkroomError, match="corrupted"):
        reconstruct(folder, 0.1)
