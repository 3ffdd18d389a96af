"""Samplers with a denoiser whose answer is known."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from torch import Tensor

from darkroom.diffusion.bound import bits_per_dim, log_variance
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.inversion import encode, inpaint
from darkroom.diffusion.samplers import ddpm, sample
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.diffusion.settings import SOLVERS, Sampling, Spacing
from darkroom.diffusion.spacing import timesteps_of
from darkroom.diffusion.types import Denoised
from darkroom.errors import DarkroomError


def generators(count: int, seed: int = 0) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed + number) for number in range(count)]


def how(solver: str, steps: int | str, **more: Any) -> Sampling:
    return Sampling(solver=solver, steps=steps, **more)


@pytest.fixture(scope="module")
def objective() -> Gaussian:
    return Gaussian(NoiseSchedule.named("cosine", 100))


def test_a_denoiser_that_knows_the_image_leads_to_it(objective: Gaussian) -> None:
    truth = torch.linspace(-1, 1, 32).reshape(2, 1, 4, 4)
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    found = sample(lambda x, t, before: Denoised(truth), noise, objective, how("ddim", 10))
    torch.testing.assert_close(found, truth, atol=1e-3, rtol=0)


def test_the_first_step_is_the_noisiest_and_each_has_the_x0_before(objective: Gaussian) -> None:
    calls: list[tuple[int, bool]] = []

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        calls.append((int(steps[0]), before is None))
        return Denoised(0.5 * x)

    sample(denoise, torch.zeros(1, 1, 2, 2), objective, how("ddim", 5))
    steps = [step for step, _ in calls]
    assert steps[0] == 99 and steps == sorted(steps, reverse=True) and len(steps) == 5
    assert [first for _, first in calls] == [True, False, False, False, False]


def test_normal_data_stay_normal(objective: Gaussian) -> None:
    """Of data N(0, s²) the best denoiser is linear, and the flow carries N(0, 1) to N(0, s²).

    30 steps do not divide those of the noise, where diffusers' DDIM goes to another step than it asks next.
    """
    s = 0.5
    left = torch.from_numpy(objective.schedule.alphas_cumprod).float()

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        a = left[steps][:, None, None, None]
        return Denoised(a.sqrt() * s**2 / (a * s**2 + 1 - a) * x)

    noise = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    found = sample(denoise, noise, objective, how("ddim", 30))
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


# ----------------------------------------------------------------------------------------------------------------------
# Beside diffusers' schedulers


def followed(scheduler: Any, outputs: list[Tensor], noise: Tensor) -> list[Tensor]:
    """Return every x of a scheduler that is told these outputs."""
    made, x = [noise], noise
    for step, output in zip(scheduler.timesteps, outputs, strict=True):
        extra = {"generator": torch.Generator().manual_seed(3)} if isinstance(scheduler, DDPMScheduler) else {}
        x = scheduler.step(output, step, x, **extra).prev_sample
        made.append(x)
    return made


def test_a_step_of_ddpm_with_a_learned_range_is_that_of_diffusers() -> None:
    """To 1e-5, but for the last step, where ours adds no noise."""
    steps = 20
    objective = Gaussian(NoiseSchedule.named("linear", 1000), variance="learned_range")
    scheduler = DDPMScheduler(
        trained_betas=objective.schedule.betas, variance_type="learned_range", prediction_type="sample",
        timestep_spacing="trailing", clip_sample=False,
    )  # fmt: skip
    scheduler.set_timesteps(steps)
    noise = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(1)
    said = [torch.randn(1, 4, 4, 4, generator=random) for _ in range(steps)]
    theirs = followed(scheduler, said, noise)
    path = ddpm(objective, how("ddpm", steps), [torch.Generator()])
    assert path.times.tolist() == scheduler.timesteps.tolist()
    for number, output in enumerate(said[:-1]):
        mean, raw = output.chunk(2, dim=1)
        own = ddpm(objective, how("ddpm", steps), [torch.Generator().manual_seed(3)])
        found = own.step(Denoised(mean, variance=(raw + 1) / 2), number, theirs[number])
        torch.testing.assert_close(found, theirs[number + 1], rtol=1e-5, atol=1e-5)


def test_dpm_is_that_of_diffusers() -> None:
    objective = Gaussian(NoiseSchedule.named("cosine", 1000))
    scheduler = DPMSolverMultistepScheduler(
        trained_betas=objective.schedule.betas, algorithm_type="dpmsolver++", prediction_type="sample",
        timestep_spacing="trailing", final_sigmas_type="zero",
    )  # fmt: skip
    scheduler.set_timesteps(20)
    noise = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))

    def network(x: Tensor, t: int) -> Tensor:
        return torch.tanh(x + t / 1000)

    theirs = noise
    for step in scheduler.timesteps:
        theirs = scheduler.step(network(theirs, int(step)), step, theirs).prev_sample
    ours = sample(lambda x, t, b: Denoised(network(x, int(t[0]))), noise, objective, how("dpm", 20))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


# ----------------------------------------------------------------------------------------------------------------------
# The bound


def test_bits_per_dim_of_normal_data_by_hand() -> None:
    """Of data N(0, s²) and the denoiser that knows them, each term by NumPy in float64."""
    schedule, s = NoiseSchedule.named("linear", 40), 0.4
    x0 = s * torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)).clamp(-2, 2)
    random = np.random.default_rng(0)
    noise = {step: torch.from_numpy(random.standard_normal(x0.shape).astype(np.float32)) for step in range(40)}
    left, betas = schedule.alphas_cumprod, schedule.betas

    def shrink(step: int) -> float:
        return math.sqrt(left[step]) * s**2 / (left[step] * s**2 + 1 - left[step])

    def predict(x: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        return shrink(int(steps[0])) * x, log_variance("fixed_large", None, steps, schedule)

    found = bits_per_dim(predict, x0, noise.__getitem__, schedule)
    for step in range(1, 40):
        x = math.sqrt(left[step]) * x0.double() + math.sqrt(1 - left[step]) * noise[step].double()
        away = math.sqrt(left[step - 1]) * betas[step] / (1 - left[step]) * (x0 - shrink(step) * x)
        small = betas[step] * (1 - left[step - 1]) / (1 - left[step])
        nats = 0.5 * (math.log(betas[step] / small) - 1 + small / betas[step] + away**2 / betas[step])
        expected = nats.mean(dim=(1, 2, 3)) / math.log(2)
        np.testing.assert_allclose(found.steps[:, step].numpy(), expected.numpy(), rtol=1e-3, atol=1e-6)
    mean, variance = math.sqrt(left[-1]) * x0.double(), 1 - left[-1]
    prior = (0.5 * (variance + mean**2 - 1 - math.log(variance))).mean(dim=(1, 2, 3)) / math.log(2)
    np.testing.assert_allclose(found.prior.numpy(), prior.numpy(), rtol=1e-4)
    torch.testing.assert_close(found.total, found.prior + found.steps.sum(1))
    assert bool((found.steps[:, 0] > 0).all()) and found.x0_mse.shape == found.eps_mse.shape == (3, 40)


def test_the_way_back_of_ddim_finds_the_noise(objective: Gaussian) -> None:
    """Of normal data, whose flow is linear, up to the error of 100 steps."""
    s, left = 0.5, torch.from_numpy(objective.schedule.alphas_cumprod).float()

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        a = left[steps][:, None, None, None]
        return Denoised(a.sqrt() * s**2 / (a * s**2 + 1 - a) * x)

    noise = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = sample(denoise, noise, objective, how("ddim", 100))
    torch.testing.assert_close(encode(denoise, data, objective, how("ddim", 100)), noise, atol=0.15, rtol=0.05)


@pytest.mark.parametrize("spacing", ["trailing", "leading"])
@pytest.mark.parametrize("solver", SOLVERS["gaussian"])
def test_every_solver_takes_the_timesteps_of_the_spacing(objective: Gaussian, solver: str, spacing: Spacing) -> None:
    taken: list[int] = []
    left = torch.from_numpy(objective.schedule.alphas_cumprod).float()

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        """Of normal data with a deviation of 0.5."""
        taken.append(int(steps[0]))
        a = left[steps][:, None, None, None]
        return Denoised(a.sqrt() * 0.25 / (a * 0.25 + 1 - a) * x)

    noise = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    found = sample(denoise, noise, objective, how(solver, 25, spacing=spacing), generators(1))
    assert taken == timesteps_of(100, 25, spacing).tolist()
    # leading begins where some signal is left, and is given noise alone; fixed_small of ddpm is too small for data.
    assert float(found.std()) == pytest.approx(0.5, rel=0.3 if solver == "ddpm" else 0.1)


def test_few_steps_of_ddim_with_all_noise_are_finite() -> None:
    """Of 2 steps 1 - a' - σ² is below 0 in float32."""
    objective = Gaussian(NoiseSchedule.named("cosine", 1000))
    noise = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    found = sample(lambda x, t, b: Denoised(0.5 * x), noise, objective, how("ddim", 2, eta=1.0), generators(2))
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_the_noise_of_ddim_has_the_size_of_its_formula(objective: Gaussian, eta: float) -> None:
    """σ² = η² (1 - a') / (1 - a) (1 - a / a'): with η 1 that of DDPM between the timesteps that are taken."""
    calls: list[Tensor] = []

    def denoise(x: Tensor, steps: Tensor, before: Tensor | None) -> Denoised:
        calls.append(x)
        return Denoised(torch.zeros_like(x))

    noise = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(5))
    sample(denoise, noise, objective, how("ddim", 10, eta=eta), generators(1, 3))
    now, then = (objective.schedule.alphas_cumprod[step] for step in timesteps_of(100, 10)[:2])
    variance = eta**2 * (1 - then) / (1 - now) * (1 - now / then)
    z = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(3)) if eta else torch.zeros(1, 1, 4, 4)
    expected = math.sqrt(1 - then - variance) * noise.double() / math.sqrt(1 - now) + math.sqrt(variance) * z.double()
    torch.testing.assert_close(calls[1].double(), expected, rtol=1e-5, atol=1e-3)  # 1 - a' - σ² cancels
