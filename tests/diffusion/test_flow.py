"""The straight path, its velocity, and the law of the time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.diffusion.flow import (
    flow_matching_loss,
    interpolate,
    logit_normal_times,
    velocity,
)


def test_the_path_begins_at_data_and_ends_at_noise():
    data, noise = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4)
    assert torch.equal(interpolate(data, noise, torch.zeros(3)), data)
    assert torch.equal(interpolate(data, noise, torch.ones(3)), noise)


def test_the_velocity_is_the_derivative_of_the_path():
    """Central difference in float64: the path is linear, so it is exact to rounding."""
    data, noise = torch.randn(2, 1, 3, 3, dtype=torch.float64), torch.randn(2, 1, 3, 3, dtype=torch.float64)
    t, h = torch.tensor([0.3, 0.8], dtype=torch.float64), 1e-3
    difference = (interpolate(data, noise, t + h) - interpolate(data, noise, t - h)) / (2 * h)
    assert torch.allclose(difference, velocity(data, noise), atol=1e-11)


def test_the_loss_is_the_formula_in_float64():
    data, noise, prediction = torch.randn(3, 5, 2, 4, 4)
    d, n, v = (x.double().numpy() for x in (data, noise, prediction))
    expected = ((v - (n - d)) ** 2).reshape(5, -1).mean(axis=1)
    assert flow_matching_loss(prediction, data, noise).numpy() == pytest.approx(expected, rel=1e-5)
    assert flow_matching_loss(noise - data, data, noise).max() == 0


@settings(max_examples=20, deadline=None)
@given(mean=st.floats(-2, 2), std=st.floats(0.1, 2))
def test_logit_normal_times_have_the_asked_law(mean, std):
    """The logit of 2,000 times: mean and deviation within 5 standard errors."""
    draws = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    times = logit_normal_times(draws, mean, std).astype(np.float64)
    logits = np.log(times / (1 - times))
    assert abs(logits.mean() - mean) < 5 * std / np.sqrt(2000)
    assert abs(logits.std() / std - 1) < 5 / np.sqrt(4000) + 1e-3
