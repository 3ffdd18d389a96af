"""Guidance: which channels, when, how much, and away from what."""

import pytest
import torch

from darkroom.diffusion.denoiser import Guidance, denoiser
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.diffusion.settings import Sampling

X = torch.randn(3, 4, 2, 2, generator=torch.Generator().manual_seed(0))


class Spoken:
    """Says `conditional`, or of the second half of its rows `other`; counts its calls and rows."""

    def __init__(self, conditional, other=None):
        self.conditional, self.other, self.rows = conditional, other, []

    def __call__(self, x, timesteps, before):
        self.rows.append(len(x))
        return self.conditional if self.other is None else torch.cat([self.conditional, self.other])


def velocities(guidance, time, channels=4):
    said, null = torch.randn(3, channels, 2, 2), torch.randn(3, channels, 2, 2)
    one, both = Spoken(said), Spoken(said, null)
    found = denoiser(one, Flow(), guidance, both=both)(X, torch.full((3,), time), None).velocity
    return found, said, null, one.rows, both.rows


def test_only_the_first_channels_are_guided():
    found, said, null, _, _ = velocities(Guidance(3.0, channels=3), 0.5)
    torch.testing.assert_close(found[:, :3], (null + 3 * (said - null))[:, :3])
    assert torch.equal(found[:, 3:], said[:, 3:])


def test_a_learned_variance_is_the_conditional_one():
    objective = Gaussian(NoiseSchedule.named("linear", 10), variance="learned_range")
    said, null = torch.randn(3, 8, 2, 2), torch.randn(3, 8, 2, 2)
    t = torch.full((3,), 4)
    found = denoiser(Spoken(said), objective, 2.5, both=Spoken(said, null))(X, t, None)
    assert torch.equal(found.variance, (said[:, 4:] + 1) / 2)
    expected = objective.denoised(torch.cat([null[:, :4] + 2.5 * (said - null)[:, :4], said[:, 4:]], 1), X, t)
    torch.testing.assert_close(found.x0, expected.x0)


@pytest.mark.parametrize("channels", [None, 3])
def test_a_learned_variance_is_guided_where_asked(channels):
    objective = Gaussian(NoiseSchedule.named("linear", 10), variance="learned_range")
    said, null = torch.randn(3, 8, 2, 2), torch.randn(3, 8, 2, 2)
    t, how = torch.full((3,), 4), Guidance(2.5, channels=channels, variance=True)
    found = denoiser(Spoken(said), objective, how, both=Spoken(said, null))(X, t, None)
    whole = null + 2.5 * (said - null)
    if channels is not None:
        whole[:, channels:4] = said[:, channels:4]
    expected = objective.denoised(whole, X, t)
    torch.testing.assert_close(found.variance, expected.variance)
    torch.testing.assert_close(found.x0, expected.x0)


@pytest.mark.parametrize(("time", "guided"), [(0.1, False), (0.2, True), (0.5, True), (0.75, True), (0.8, False)])
def test_outside_the_interval_the_network_is_called_once_and_by_itself(time, guided):
    found, said, _, alone, both = velocities(Guidance(3.0, interval=(0.2, 0.75)), time)
    assert (alone, both) == (([], [6]) if guided else ([3], []))
    assert torch.equal(found, said) != guided


def test_the_ends_of_the_interval_are_guided_though_times_are_float32():
    """0.3 is a little more in float32, and 0.7 a little less."""
    assert Guidance(3.0, interval=(0.1, 0.3)).at(float(torch.tensor(0.3))) == 3.0
    assert Guidance(3.0, interval=(0.7, 0.9)).at(float(torch.tensor(0.7))) == 3.0


def test_the_interval_counts_timesteps_of_a_gaussian_schedule():
    objective, how = Gaussian(NoiseSchedule.named("linear", 1000)), Guidance(2.0, interval=(0.0, 0.5))
    both, one = Spoken(X, X), Spoken(X)
    denoise = denoiser(one, objective, how, both=both)
    for step in (999, 501, 499, 0):
        denoise(X, torch.full((3,), step), None)
    assert (one.rows, both.rows) == ([3, 3], [6, 6])


@pytest.mark.parametrize(
    ("schedule", "expected"), [("constant", [5, 5, 5]), ("linear", [1, 3, 5]), ("cosine", [1, 3, 5])]
)
def test_the_scale_grows_from_one(schedule, expected):
    how = Guidance(5.0, schedule=schedule)
    assert [how.at(time) for time in (1.0, 0.5, 0.0)] == pytest.approx(expected)
    if schedule == "cosine":
        assert how.at(0.75) == pytest.approx(1 + 4 * (1 - 2**-0.5) / 2)


def test_a_guide_network_takes_the_place_of_the_null_condition():
    strong, weak = torch.randn(3, 4, 2, 2), torch.randn(3, 4, 2, 2)
    one, other = Spoken(strong), Spoken(weak)
    denoise = denoiser(one, Flow(), 2.0, both=Spoken(strong, strong), guide=other)
    found = denoise(X, torch.full((3,), 0.5), None).velocity
    torch.testing.assert_close(found, weak + 2 * (strong - weak))
    assert one.rows == other.rows == [3]


def test_a_network_without_conditions_is_guided_by_nothing():
    found = denoiser(Spoken(X), Flow(), 7.0)(X, torch.full((3,), 0.5), None)
    assert torch.equal(found.velocity, X)


def test_the_keys_of_params():
    how = Guidance.of(
        Sampling(
            solver="euler", steps=2, guidance=3.0, guidance_channels=3, guidance_from=0.1, guidance_to=0.6,
            guidance_schedule="linear",
        )
    )  # fmt: skip
    assert how == Guidance(3.0, 3, (0.1, 0.6), "linear")
    with pytest.raises(ValueError, match=r"guidance_from \(0.6\) must be below guidance_to \(0.5\)"):
        Sampling(solver="euler", steps=2, guidance_from=0.6, guidance_to=0.5)
