"""Timesteps of a respaced schedule, against lists written by hand."""

import numpy as np
import pytest

from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.diffusion.settings import Diffusion, Sampling, misfit
from darkroom.diffusion.spacing import timesteps_of


@pytest.mark.parametrize(
    ("total", "steps", "spacing", "expected"),
    [
        (10, 5, "trailing", [9, 7, 5, 3, 1]),
        (10, 5, "leading", [8, 6, 4, 2, 0]),
        (10, 4, "linspace", [9, 6, 3, 0]),
        (1000, "ddim30", "trailing", list(range(0, 1000, 34))[::-1]),  # 34 is the smallest stride with 30 steps
        (300, "10,15,20", "trailing", None),
        (11, "2,3", "trailing", [10, 8, 6, 5, 0]),  # sections of 6 and 5
        (7, 1, "linspace", [0]),
    ],
)
def test_timesteps(total, steps, spacing, expected):
    found = timesteps_of(total, steps, spacing)
    assert found.dtype == np.int64 and list(found) == sorted(set(found.tolist()), reverse=True)
    if expected is None:  # sections of 100, each with both of its ends
        parts = [found[(found >= at) & (found < at + 100)] for at in (0, 100, 200)]
        assert [len(part) for part in parts] == [10, 15, 20]
        assert [(part.min(), part.max()) for part in parts] == [(0, 99), (100, 199), (200, 299)]
    else:
        assert found.tolist() == expected


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ("ddim501", "no stride selects 501 of 1000 timesteps"),
        ("600,10", "600 are requested"),
        (1001, "at most 1000 steps"),
    ],
)
def test_what_a_schedule_has_not_is_refused(steps, says):
    with pytest.raises(ValueError, match=says):
        timesteps_of(1000, steps)


def test_a_respaced_schedule_has_the_noise_of_its_timesteps():
    schedule, timesteps = NoiseSchedule.named("cosine", 100), timesteps_of(100, 7, "linspace")
    respaced = schedule.respaced(timesteps)
    np.testing.assert_allclose(respaced.alphas_cumprod, schedule.alphas_cumprod[timesteps[::-1]], rtol=1e-9)
    whole = schedule.respaced(np.arange(100))
    np.testing.assert_allclose(whole.betas, schedule.betas, rtol=1e-9)


def test_a_single_step_begins_at_noise():
    with pytest.raises(ValueError, match="set it to trailing, or steps to 2 or more"):
        Sampling(solver="ddim", steps=1, spacing="leading")
    assert timesteps_of(10, 1).tolist() == [9] and Sampling(solver="ddim", steps=1).count == 1
    assert Sampling(solver="ddim", steps=2, spacing="leading").count == 2


def test_a_spacing_that_nothing_reads_is_refused():
    with pytest.raises(ValueError, match=r"steps is ddim5, which selects the timesteps, but spacing is leading"):
        Sampling(solver="ddim", steps="ddim5", spacing="leading")
    sampling = Sampling(solver="dpm", steps=5, spacing="leading")
    assert misfit(sampling, Diffusion(objective="gaussian"), 10) is None
    found = misfit(sampling, Diffusion(objective="flow"), 10)
    assert found and (found.key, found.source, found.bound) == ("spacing", "objective", "flow")
