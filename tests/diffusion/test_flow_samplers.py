"""Euler's steps of a flow against those of diffusers."""

import numpy as np
import pytest
import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

from darkroom.diffusion.flow import Flow
from darkroom.diffusion.samplers import euler, sample
from darkroom.diffusion.settings import Sampling
from darkroom.diffusion.types import Denoised


@pytest.mark.parametrize("steps", [1, 7, 50])
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


def test_times_run_from_one_towards_zero():
    seen = []

    def denoise(x, t, before):
        seen.append(t[0].item())
        return Denoised(x, torch.zeros_like(x))

    sample(denoise, torch.zeros(1, 1, 1, 1), Flow(), Sampling(solver="euler", steps=4))
    assert seen == pytest.approx([1.0, 0.75, 0.5, 0.25])
