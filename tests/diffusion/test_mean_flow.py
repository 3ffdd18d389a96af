"""MeanFlow: its target, its times, and one call."""

import numpy as np
import pytest
import torch

from darkroom.diffusion.denoiser import denoiser
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.mean_flow import MeanFlow, Predict
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.settings import MeanFlowLoss, Sampling
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT


def objective(**loss: float) -> MeanFlow:
    return MeanFlow(Flow((0.0, 1.0)), MeanFlowLoss.model_validate(loss))


def network() -> DiT:
    torch.manual_seed(0)
    model = DiT(DiTConfig(2, 4, 3, 16, 2, 2, 2, two_times=True)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def drawn(count: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    x0, noise = (torch.from_numpy(rng.normal(size=(count, 2, 4, 4))) for _ in range(2))
    later, earlier = torch.from_numpy(np.sort(rng.random((count, 2)))[:, ::-1].copy()).unbind(1)
    return x0, noise, torch.stack([later, earlier], dim=1)


def under(model: DiT, labels: torch.Tensor) -> Predict:
    return lambda x, timesteps, rows: model(x, timesteps, labels[rows])


@pytest.mark.parametrize(("guidance", "mix"), [(1.0, 0.0), (2.5, 0.0), (1.0, 0.4)])
def test_the_target_is_the_formula_with_a_derivative_by_differences(guidance: float, mix: float) -> None:
    model, (x0, noise, t) = network(), drawn()
    t[2, 1] = t[2, 0]
    made = objective(guidance=guidance, mix=mix, power=0.0)
    labels, null = torch.tensor([0, 1, 2, 0, 1, 3]), torch.full((6,), 3)
    kept = labels < 3

    def u(x: torch.Tensor, later: torch.Tensor, of: torch.Tensor, earlier: torch.Tensor = t[:, 1]) -> torch.Tensor:
        return model(x, 10 * torch.stack([later, later - earlier], dim=1), of)

    found = made.trained(under(model, labels), under(model, null), x0, noise, t, kept)
    wide = t[:, :1, None, None]
    x, velocity = (1 - wide) * x0 + wide * noise, noise - x0
    with torch.no_grad():
        own, unconditional = (u(x, t[:, 0], of, t[:, 0]) for of in (labels, null))
        guided = guidance * velocity + mix * own + (1 - guidance - mix) * unconditional
        velocity = torch.where(kept[:, None, None, None], guided, velocity)
        step = 1e-6
        ahead, behind = (u(x + way * velocity, t[:, 0] + way, labels) for way in (step, -step))
        target = velocity - (t[:, 0] - t[:, 1])[:, None, None, None] * (ahead - behind) / (2 * step)
        error = (u(x, t[:, 0], labels) - target).square().flatten(1)
    assert torch.allclose(found["loss"], error.sum(1), rtol=1e-4)
    assert torch.allclose(found["error"], error.mean(1), rtol=1e-4)


def test_the_gradient_leaves_target_and_weight_alone() -> None:
    """It is that of w |u - target|² for the constants w and target."""
    model, (x0, noise, t), made = network(), drawn(), objective(power=0.75)
    labels, kept = torch.tensor([0, 1, 2, 0, 1, 2]), torch.ones(6, dtype=torch.bool)
    made.trained(under(model, labels), None, x0, noise, t, kept)["loss"].sum().backward()
    found = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    wide = t[:, :1, None, None]
    x, velocity = (1 - wide) * x0 + wide * noise, noise - x0

    def u(x: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
        return model(x, 10 * torch.stack([later, later - t[:, 1]], dim=1), labels)

    with torch.no_grad():
        ahead, behind = (u(x + way * velocity, t[:, 0] + way) for way in (1e-6, -1e-6))
        target = velocity - (t[:, 0] - t[:, 1])[:, None, None, None] * (ahead - behind) / 2e-6
    total = (u(x, t[:, 0]) - target).square().flatten(1).sum(1)
    ((total.detach() + 1e-3) ** -0.75 * total).sum().backward()
    expected = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(torch.allclose(one, other, rtol=1e-3, atol=1e-8) for one, other in zip(found, expected, strict=True))


def test_pairs_are_in_order_and_as_often_apart_as_asked() -> None:
    rng = np.random.default_rng(0)
    first, second = (torch.from_numpy(rng.random(4000).astype(np.float32)) for _ in range(2))
    t = objective(fraction=0.3).pairs(first, second, rng.random(4000))
    apart = t[:, 0] != t[:, 1]
    assert (t[:, 0] >= t[:, 1]).all() and apart.float().mean() == pytest.approx(0.3, abs=0.03)
    assert torch.equal(t[~apart, 0], first[~apart])


@pytest.mark.parametrize("steps", [1, 5])
def test_an_exact_average_leads_to_the_data_in_any_number_of_calls(steps: int) -> None:
    """One data point: u is ε - x_0, and calls see the ends of their steps."""
    target, noise = torch.full((3, 1, 2, 2), 0.7), torch.randn(3, 1, 2, 2)
    seen = []

    def exact(x: torch.Tensor, timesteps: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        seen.append(timesteps[0].tolist())
        return (x - target) / (timesteps[:, 0] / 10)[:, None, None, None]

    denoise = denoiser(exact, objective())
    found = sample(denoise, noise, objective(), Sampling(solver="euler", steps=steps))
    assert torch.allclose(found, target, atol=1e-5)
    spans = [[10 * (1 - number / steps), 10 / steps] for number in range(steps)]
    assert np.allclose(seen, spans, atol=1e-2)
