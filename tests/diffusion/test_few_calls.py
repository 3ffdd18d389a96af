"""Few calls lead where the steps of a solver lead, whatever the objective and the solver."""

from typing import Any

import numpy as np
import pytest
import torch

from darkroom.diffusion.few_calls import FewCalls
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.samplers import follow, sample, through
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.diffusion.settings import Sampling
from darkroom.diffusion.types import Denoised

GAUSSIAN = Gaussian(NoiseSchedule.named("cosine", 100), "x0")
WAYS = [
    *((Flow(shift=2.0), solver) for solver in ("euler", "heun", "dpm")),
    (GAUSSIAN, "ddim"),
    (GAUSSIAN, "dpm"),
]


def said(x0: torch.Tensor, x: torch.Tensor, t: torch.Tensor, objective: Any) -> Denoised:
    """Return what a network says that finds x0 in x."""
    if isinstance(objective, Gaussian):
        return Denoised(x0)
    return Denoised(x0, (x - x0) / t.reshape(-1, 1, 1, 1))


def bent(objective: Any) -> Any:
    """Return a denoiser whose ways are curved."""
    return lambda x, t, before: said(0.8 * torch.sin(x) + 0.1 * x.mean(), x, t, objective)


def images(count: int = 6) -> torch.Tensor:
    return torch.randn(count, 2, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("objective", "solver"), WAYS)
def test_what_is_learned_is_the_step_that_leads_where_the_solver_does(objective: Any, solver: str) -> None:
    """The x0 of a loss of 0, found from its gradient, is put into one step of Euler or DDIM."""
    few, x, call = FewCalls(objective, solver, 12, 3), images(), np.array([0, 1, 2, 2, 1, 0])
    reached = few.reached(x, call, lambda rows: bent(objective))
    time = few.starts(call, x.device)
    guess = torch.zeros_like(x, requires_grad=True)
    losses = few.losses(said(guess, x, time, objective), x, reached, call)
    (slope,) = torch.autograd.grad(losses.sum(), guess)
    (other,) = torch.autograd.grad(
        few.losses(said(point := torch.ones_like(x, requires_grad=True), x, time, objective), x, reached, call).sum(),
        point,
    )
    x0 = slope / (slope - other)  # the loss is quadratic, so its gradient is linear
    assert few.losses(said(x0, x, time, objective), x, reached, call).max() < 1e-8
    one = "euler" if isinstance(objective, Flow) else "ddim"
    for row, number in enumerate(call):
        path = through(one, objective, few.ends[number])
        found = follow(path, lambda x, t, before, row=row: said(x0[row : row + 1], x, t, objective), x[row : row + 1])
        torch.testing.assert_close(found, reached[row : row + 1], atol=2e-5, rtol=0)


@pytest.mark.parametrize(("objective", "solver"), WAYS)
def test_the_calls_begin_where_as_many_steps_of_the_sampler_do(objective: Any, solver: str) -> None:
    few, called = FewCalls(objective, solver, 10, 4), []
    one = "euler" if isinstance(objective, Flow) else "ddim"

    def denoise(x: torch.Tensor, t: torch.Tensor, before: object) -> Denoised:
        called.append(float(t[0]))
        return said(torch.zeros_like(x), x, t, objective)

    sample(denoise, images(1), objective, Sampling(solver=one, steps=4))
    assert called == pytest.approx(few.starts(np.arange(4), torch.device("cpu")).tolist(), abs=1e-6)
    assert few.steps == 12 and few.ends[-1, 1] == (0 if isinstance(objective, Flow) else -1)
    assert all(one[1] == other[0] for one, other in zip(few.ends[:-1], few.ends[1:], strict=True))


@pytest.mark.parametrize(("objective", "solver"), WAYS)
def test_no_loss_is_left_on_straight_ways(objective: Any, solver: str) -> None:
    few, x, call = FewCalls(objective, solver, 8, 2), images(), np.array([0, 1, 1, 1, 0, 0])
    point = torch.full_like(x, 0.25)
    reached = few.reached(x, call, lambda rows: lambda x, t, before: said(point[: len(x)], x, t, objective))
    losses = few.losses(said(point, x, few.starts(call, x.device), objective), x, reached, call)
    assert losses.max() < 1e-8
    torch.testing.assert_close(reached[call == 1], point[call == 1], atol=1e-5, rtol=0)
    assert {name: len(each) for name, each in few.of_each(losses, call).items()} == {"loss_call_1": 3, "loss_call_2": 3}


def test_no_timestep_is_taken_twice() -> None:
    """3 timesteps in each call, and 4 steps asked for."""
    few = FewCalls(Gaussian(NoiseSchedule.named("cosine", 6), "x0"), "ddim", 8, 2)
    assert [way.tolist() for way in few.ways] == [[5, 4, 3, 2], [2, 1, 0, -1]]


def test_a_loss_counts_by_the_signal_to_noise_ratio_but_no_less_than_once() -> None:
    few, x = FewCalls(GAUSSIAN, "ddim", 8, 4), images(4)
    call = np.arange(4)
    reached = few.reached(x, call, lambda rows: lambda x, t, before: Denoised(torch.zeros_like(x)))
    losses = few.losses(Denoised(torch.ones_like(x)), x, reached, call)
    ratios = torch.from_numpy(GAUSSIAN.schedule.snr)[few.ends[:, 0]].clamp(min=1).float()
    torch.testing.assert_close(losses, ratios, atol=1e-4, rtol=1e-4)
    assert ratios[0] == 1 < ratios[3]
