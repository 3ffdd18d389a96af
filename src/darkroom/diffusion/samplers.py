"""Samplers: from noise to data along the flow. Each solver says at which times it asks, and takes a step."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

# Times of solvers run from 0 to 1000, as diffusers' do, ours from 0 to 1.
_TIMES = 1000


class Solver(Protocol):
    """One way through the flow, of a number of steps.

    timesteps: the times, from 1000 towards 0, at which it asks for the velocity, float32.
    """

    timesteps: Tensor

    def step(self, velocity: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return x at the next time from the velocity at this one, (N, C, H, W) float32."""
        ...


class Euler:
    """Euler's method on equal steps: x <- x + (t_next - t) * v(x, t).

    Bit for bit diffusers' FlowMatchEulerDiscreteScheduler, whose import takes longer than torch's own.
    """

    def __init__(self, steps: int) -> None:
        times = torch.from_numpy(np.linspace(1, 1 / steps, steps).astype(np.float32))
        self.timesteps = times * _TIMES
        self._widths = iter(torch.cat([times[1:], torch.zeros(1)]) - times)

    def step(self, velocity: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return x at the next time."""
        return x + next(self._widths) * velocity


class Heun:
    """Heun's second-order method: two calls a step, one in the last (Karras et al., 2022, algorithm 1)."""

    def __init__(self, steps: int) -> None:
        from diffusers.schedulers.scheduling_flow_match_heun_discrete import FlowMatchHeunDiscreteScheduler

        self._scheduler: Any = FlowMatchHeunDiscreteScheduler(num_train_timesteps=_TIMES)
        self._scheduler.set_timesteps(steps)
        self.timesteps: Tensor = self._scheduler.timesteps

    def step(self, velocity: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return x at the next time."""
        found: Tensor = self._scheduler.step(velocity, time, x).prev_sample
        return found


SOLVERS: dict[str, Callable[[int], Solver]] = {"euler": Euler, "heun": Heun}


@torch.no_grad()
def sample(velocity: Callable[[Tensor, Tensor], Tensor], noise: Tensor, solver: str, steps: int) -> Tensor:
    """Return the data that the flow carries `noise` to, (N, C, H, W), float32.

    Args:
        velocity: v(x, t) for latents (N, C, H, W) and times (N,) in [0, 1].
        noise: standard normal, (N, C, H, W), float32.
        solver: a key of `SOLVERS`.
        steps: steps from t = 1 to t = 0.
    """
    path = SOLVERS[solver](steps)
    x = noise
    for time in path.timesteps:
        times = (time / _TIMES).to(x.device, torch.float32).expand(len(x))
        x = path.step(velocity(x, times).float(), time, x)
    return x
