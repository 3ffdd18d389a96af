"""The straight path, its velocity, and the distribution of its times."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.diffusion.flow import Flow

FLOW = Flow()


def loss(prediction, data, noise):
    return FLOW.losses(prediction, data, noise, data, torch.zeros(len(data)))["loss"]


def test_the_loss_is_the_formula_in_float64():
    data, noise, prediction = torch.randn(3, 5, 2, 4, 4)
    d, n, v = (x.double().numpy() for x in (data, noise, prediction))
    expected = ((v - (n - d)) ** 2).reshape(5, -1).mean(axis=1)
    assert loss(prediction, data, noise).numpy() == pytest.approx(expected, rel=1e-5)
    assert loss(noise - data, data, noise).max() == 0


@settings(max_examples=3, deadline=None)
@given(mean=st.floats(-2, 2), std=st.floats(0.1, 2))
def test_logit_normal_times_have_mean_and_deviation_of_their_logit(mean, std):
    """The logit of 2,000 times: mean and deviation within 5 standard errors."""
    draws = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    times = Flow((mean, std)).times(np.zeros(2000), draws).double().numpy()
    logits = np.log(times / (1 - times))
    assert abs(logits.mean() - mean) < 5 * std / np.sqrt(2000)
    assert abs(logits.std() / std - 1) < 5 / np.sqrt(4000) + 1e-3


def test_times_follow_from_uniform_numbers_alone():
    """The normal number that belongs to a uniform one: its quantile."""
    uniform = np.linspace(0.01, 0.99, 99)
    times = Flow((0.3, 0.7)).times(uniform).double()
    assert torch.allclose((torch.logit(times) - 0.3) / 0.7, torch.special.ndtri(torch.from_numpy(uniform)), atol=1e-5)
    assert torch.equal(FLOW.times(uniform), torch.from_numpy(uniform).float())


@pytest.mark.parametrize("shape", [(2, 5), (2, 1, 3, 3)])
def test_the_data_follow_from_the_velocity(shape):
    """Of vectors and of images; a threshold on the data changes the velocity to one that leads there."""
    data, noise, t = torch.randn(shape), torch.randn(shape), torch.tensor([0.2, 0.9])
    x = FLOW.add_noise(data, noise, t)
    found = FLOW.denoised(noise - data, x, t)
    assert torch.equal(found.velocity, noise - data) and torch.allclose(found.x0, data, atol=1e-5)
    clipped = FLOW.denoised(noise - data, x, t, lambda x0: x0.clamp(-0.1, 0.1))
    assert clipped.x0.abs().max() <= 0.1
    assert torch.allclose(x - t.reshape(-1, *[1] * (len(shape) - 1)) * clipped.velocity, clipped.x0, atol=1e-6)
