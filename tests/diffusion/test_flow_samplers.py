"""The samplers against flows whose solution is known."""

import numpy as np
import pytest
import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

from darkroom.diffusion.flow import Flow
from darkroom.diffusion.samplers import euler, sample
from darkroom.diffusion.settings import Sampling
from darkroom.diffusion.types import Denoised


def follow(velocity, noise, solver, steps):
    """Sample with a velocity of x and t."""
    return sample(lambda x, t, before: Denoised(x, velocity(x, t)), noise, Flow(), Sampling(solver=solver, steps=steps))


@pytest.mark.parametrize("solver", ["euler", "heun"])
@pytest.mark.parametrize("steps", [2, 7, 25])
def test_a_constant_velocity_is_followed_exactly(solver, steps):
    noise = torch.randn(4, 2, 3, 3)
    target = torch.randn(4, 2, 3, 3)
    found = follow(lambda x, t: noise - target, noise, solver, steps)
    assert torch.allclose(found, target, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 7, 25, 50])
def test_euler_is_diffusers_bit_for_bit(steps):
    """The same multiplications and additions in float32: no difference on any processor."""
    scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000)
    scheduler.set_timesteps(sigmas=np.linspace(1, 1 / steps, steps).tolist())
    ours = euler(Flow(), Sampling(solver="euler", steps=steps), None)
    assert torch.equal(ours.times, scheduler.timesteps / 1000)
    generator = torch.Generator().manual_seed(steps)
    x = y = torch.randn(3, 2, 5, 5, generator=generator)
    for number, time in enumerate(scheduler.timesteps):
        velocity = torch.randn(x.shape, generator=generator) * x.tanh()
        x, y = ours.step(Denoised(x, velocity), number, x), scheduler.step(velocity, time, y).prev_sample
        assert torch.equal(x, y)


def exact(x, time):
    """The velocity of the straight path when the data are N(0, 0.25): v = dx/dt of x = sqrt((1-t)²/4 + t²) * z."""
    t = time[:, None, None, None].double()
    variance = (1 - t) ** 2 / 4 + t**2
    return (x.double() * (t - (1 - t) / 4) / variance).float()


def error(solver, steps):
    noise = torch.randn(500, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    return (follow(exact, noise, solver, steps) - noise / 2).abs().max().item()


def test_euler_converges_with_the_first_order_and_heun_is_better():
    """Halving the step halves Euler's error, within a quarter; Heun is at least ten times as near at 50 steps."""
    assert error("euler", 50) / error("euler", 100) == pytest.approx(2, rel=0.25)
    assert error("heun", 50) < error("euler", 50) / 10


def test_times_run_from_one_towards_zero():
    seen = []
    follow(lambda x, t: (seen.append(t[0].item()), torch.zeros_like(x))[1], torch.zeros(1, 1, 1, 1), "euler", 4)
    assert seen == pytest.approx([1.0, 0.75, 0.5, 0.25])
