"""Samplers: from noise to data along the flow, by diffusers' schedulers behind one adapter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from diffusers.schedulers import FlowMatchEulerDiscreteScheduler, FlowMatchHeunDiscreteScheduler
from torch import Tensor

# Times of diffusers' schedulers run from 0 to 1000, ours from 0 to 1.
_TIMES = 1000


def _euler(steps: int) -> Any:
    """Return Euler's method on equal steps: x <- x + (t_next - t) * v(x, t)."""
    scheduler: Any = FlowMatchEulerDiscreteScheduler(num_train_timesteps=_TIMES)
    scheduler.set_timesteps(sigmas=np.linspace(1, 1 / steps, steps).tolist())
    return scheduler


def _heun(steps: int) -> Any:
    """Return Heun's second-order method: two calls a step, one in the last (Karras et al., 2022, algorithm 1)."""
    scheduler: Any = FlowMatchHeunDiscreteScheduler(num_train_timesteps=_TIMES)
    scheduler.set_timesteps(steps)
    return scheduler


SOLVERS = {"euler": _euler, "heun": _heun}


@torch.no_grad()
def sample(velocity: Callable[[Tensor, Tensor], Tensor], noise: Tensor, solver: str, steps: int) -> Tensor:
    """Return the data that the flow carries `noise` to, (N, C, H, W), float32.

    Args:
        velocity: v(x, t) for latents (N, C, H, W) and times (N,) in [0, 1].
        noise: standard normal, (N, C, H, W), float32.
        solver: a key of `SOLVERS`.
        steps: steps from t = 1 to t = 0.
    """
    scheduler = SOLVERS[solver](steps)
    x = noise
    for time in scheduler.timesteps:
        times = (time / _TIMES).to(x.device, torch.float32).expand(len(x))
        x = scheduler.step(velocity(x, times).float(), time, x).prev_sample
    return x
