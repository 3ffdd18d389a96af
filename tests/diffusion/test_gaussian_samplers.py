"""Samplers with a denoiser whose answer is known."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from darkroom.diffusion.denoiser import Denoised
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.samplers import inpaint, sample
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.diffusion.settings import SOLVERS, Sampling
from darkroom.errors import DarkroomError


def generators(count: int, seed: int = 0) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed + number) for number in range(count)]


def how(solver: str, steps: int | str, **more: Any) -> Sampling:
    return Sampling(solver=solver, steps=steps, **more)


@pytest.fixture(scope="module")
def objective() -> Gaussian:
    return Gaussian(NoiseSchedule.named("cosine", 100))


@pytest.mark.parametrize("solver", SOLVERS["gaussian"])
def test_a_denoiser_that_knows_the_image_leads_to_it(objective: Gaussian, solver: str) -> None:
    truth = torch.linspace(-1, 1, 32).reshape(2, 1, 4, 4)
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    found = sample(lambda x, t, before: Denoised(truth), noise, objective, how(solver, 10), generators(2))
    torch.testing.assert_close(found, truth, atol=1e-3, rtol=0)


@pytest.mark.parametrize("solver", SOLVERS["gaussian"])
def test_the_first_step_is_the_noisiest_and_each_has_the_x0_before(objective: Gaussian, solver: str) -> None:
    calls: list[tuple[int, bool]] = []

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        calls.append((int(steps[0]), before is None))
        return Denoised(0.5 * x)

    sample(denoise, torch.zeros(1, 1, 2, 2), objective, how(solver, 5), generators(1))
    steps = [step for step, _ in calls]
    assert steps[0] == 99 and steps == sorted(steps, reverse=True) and len(steps) == 5
    assert [first for _, first in calls] == [True, False, False, False, False]


@pytest.mark.parametrize("steps", [30, 50, 60])
@pytest.mark.parametrize("solver", ["ddim", "dpm", "unipc"])
def test_normal_data_stay_normal(objective: Gaussian, solver: str, steps: int) -> None:
    """Of data N(0, s²) the best denoiser is linear, and the flow carries N(0, 1) to N(0, s²).

    Also in steps that do not divide those of the noise, where diffusers' DDIM goes to another step than it asks next.
    """
    s = 0.5
    left = torch.from_numpy(objective.schedule.alphas_cumprod).float()

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        a = left[steps][:, None, None, None]
        return Denoised(a.sqrt() * s**2 / (a * s**2 + 1 - a) * x)

    noise = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    found = sample(denoise, noise, objective, how(solver, steps))
    assert float(found.std()) == pytest.approx(s * float(noise.std()), rel=0.06)


def test_ddpm_takes_the_learned_variance() -> None:
    """One step by hand: x_{t-1} = mean + exp(logvar / 2) z, the log variance between posterior's and β's."""
    objective = Gaussian(NoiseSchedule.named("linear", 2), variance="learned_range")
    x0, fraction = torch.full((1, 1, 2, 2), 0.3), torch.full((1, 1, 2, 2), 0.7)
    noise = torch.randn(1, 1, 2, 2, generator=torch.Generator().manual_seed(5))
    calls: list[Tensor] = []

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        calls.append(x)
        return Denoised(x0, variance=fraction)

    sample(denoise, noise, objective, how("ddpm", 2), generators(1, 3))
    beta, left = objective.schedule.betas[1], objective.schedule.alphas_cumprod
    mean = (
        math.sqrt(left[0]) * beta / (1 - left[1]) * x0.double()
        + math.sqrt(1 - beta) * (1 - left[0]) / (1 - left[1]) * noise.double()
    )
    logvar = 0.7 * math.log(beta) + 0.3 * math.log(beta * (1 - left[0]) / (1 - left[1]))
    z = torch.randn(1, 1, 2, 2, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(calls[1].double(), mean + math.exp(0.5 * logvar) * z.double(), rtol=1e-5, atol=1e-6)


def test_the_last_step_of_ddpm_adds_no_noise(objective: Gaussian) -> None:
    x0, fraction = torch.full((1, 1, 2, 2), 0.3), torch.full((1, 1, 2, 2), 1.1)
    found = sample(
        lambda x, t, before: Denoised(x0, variance=fraction),
        torch.randn(1, 1, 2, 2, generator=torch.Generator().manual_seed(0)),
        objective,
        how("ddpm", 8),
        generators(1),
    )
    assert torch.equal(found, x0)


def test_an_image_does_not_depend_on_its_company(objective: Gaussian) -> None:
    noise = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        return Denoised(0.5 * x)

    together = sample(denoise, noise, objective, how("ddpm", 8), generators(3))
    alone = sample(denoise, noise[2:], objective, how("ddpm", 8), generators(3)[2:])
    assert torch.equal(together[2:], alone)
    other = sample(denoise, noise[2:], objective, how("ddpm", 8), generators(1, 77))
    assert not torch.equal(alone, other)


def test_ddim_adds_noise_with_eta_alone(objective: Gaussian) -> None:
    noise = torch.ones(1, 1, 4, 4)

    def run(eta: float, seed: int) -> Tensor:
        return sample(lambda x, t, b: Denoised(0.5 * x), noise, objective, how("ddim", 8, eta=eta), generators(1, seed))

    assert torch.equal(run(0.0, 1), run(0.0, 2))
    assert not torch.equal(run(1.0, 1), run(1.0, 2))


def test_inpainting_keeps_what_is_known_and_fits_the_rest(objective: Gaussian) -> None:
    known = torch.full((2, 1, 4, 4), 0.8)
    mask = torch.zeros(2, 1, 4, 4)
    mask[..., :2] = 1
    seen: list[Tensor] = []

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        seen.append(x)
        # A world of one grey an image: the unknown half follows from the known one.
        grey = x[..., :2].mean(dim=(1, 2, 3), keepdim=True) / math.sqrt(
            objective.schedule.alphas_cumprod[int(steps[0])]
        )
        return Denoised(grey.clamp(-1, 1).expand_as(x))

    noise = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    found = inpaint(denoise, noise, objective, how("ddpm", 10), known, mask, resamples=3, generators=generators(2))
    assert torch.equal(found[..., :2], known[..., :2])
    torch.testing.assert_close(found[..., 2:], known[..., 2:], atol=0.15, rtol=0)
    assert len(seen) == 9 * 3 + 1  # the last step leaves no noise to try again with
    left = math.sqrt(objective.schedule.alphas_cumprod[99])
    assert float((seen[0][..., :2] - left * 0.8).abs().max()) < 5  # known pixels with the noise of their step


def test_inpainting_is_refused_without_a_gaussian_noise_schedule() -> None:
    x = torch.zeros(1, 1, 2, 2)
    with pytest.raises(DarkroomError, match=r"set `sample_decoder.pictures.inpainted` to 0"):
        inpaint(lambda x, t, b: Denoised(x, x), x, Flow(), how("ddpm", 2), x, x, generators=[])
