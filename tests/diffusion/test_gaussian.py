"""What a U-Net predicts and its losses, against implementations in NumPy's float64 that share nothing with them."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from darkroom.diffusion.bound import log_variance, variational_bound
from darkroom.diffusion.gaussian import (
    Gaussian,
    distance,
    min_snr_weight,
    p2_weight,
    target_of,
    to_x0,
    variance_fraction,
)
from darkroom.diffusion.schedules import NoiseSchedule

STEPS = 50


@pytest.fixture(scope="module")
def schedule() -> NoiseSchedule:
    return NoiseSchedule.named("cosine", STEPS)


def some(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


FORMULAS = {
    "l1": np.abs,
    "l2": np.square,
    "huber": lambda error: np.where(abs(error) < 1, error**2 / 2, abs(error) - 0.5),
}


@pytest.mark.parametrize("kind", FORMULAS)
def test_the_distance_is_its_formula(kind: str) -> None:
    prediction, target = 2 * some(0, 4, 3, 4, 4), some(1, 4, 3, 4, 4)
    expected = FORMULAS[kind]((prediction - target).double().numpy()).mean(axis=(1, 2, 3))
    found = distance(prediction, target, kind)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("target", ["eps", "x0", "v"])
def test_a_perfect_prediction_gives_the_image_back(schedule: NoiseSchedule, target: str) -> None:
    steps = torch.tensor([0, 10, 25, 40])
    x0, noise = some(0, 4, 3, 4, 4), some(1, 4, 3, 4, 4)
    x = schedule.add_noise(x0, noise, steps)
    said = target_of(x0, noise, steps, schedule, target)  # type: ignore[arg-type]
    found = to_x0(said, x, steps, schedule, target)  # type: ignore[arg-type]
    torch.testing.assert_close(found, x0, rtol=2e-4, atol=2e-5)  # eps divides by α, 0.3 at step 40


def test_v_by_hand(schedule: NoiseSchedule) -> None:
    steps = torch.tensor([30])
    x0, noise = some(0, 1, 1, 2, 2), some(1, 1, 1, 2, 2)
    left = float(schedule.alphas_cumprod[30])
    expected = math.sqrt(left) * noise.double() - math.sqrt(1 - left) * x0.double()
    torch.testing.assert_close(target_of(x0, noise, steps, schedule, "v").double(), expected, rtol=1e-6, atol=1e-6)


def test_distances_by_hand() -> None:
    p, t = some(0, 3, 2, 2, 2), some(1, 3, 2, 2, 2)
    away = (p.double() - t.double()).abs().numpy()
    huber = np.where(away < 1, 0.5 * away**2, away - 0.5)
    for kind, expected in (("l1", away), ("l2", away**2), ("huber", huber)):
        found = distance(p, t, kind)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.numpy(), expected.mean(axis=(1, 2, 3)), rtol=1e-6)


def test_p2_by_hand(schedule: NoiseSchedule) -> None:
    for gamma, k in ((0.5, 1.0), (1.0, 2.0)):
        found = p2_weight(torch.arange(STEPS), schedule, gamma, k)
        for t in range(STEPS):
            left = schedule.alphas_cumprod[t]
            assert float(found[t]) == pytest.approx((k + left / (1 - left)) ** -gamma, rel=1e-6)


@pytest.mark.parametrize("target", ["eps", "x0", "v"])
def test_min_snr_is_the_same_loss_of_x0_whatever_is_predicted(schedule: NoiseSchedule, target: str) -> None:
    """A prediction that is off by the same x_0 has the same weighted loss, min(SNR, γ) |x_0 - x_0'|²."""
    steps, cap = torch.arange(1, STEPS - 5), 5.0
    x0, noise = some(0, len(steps), 1, 4, 4).double(), some(1, len(steps), 1, 4, 4).double()
    x = schedule.add_noise(x0, noise, steps)
    other = x0 + 0.1 * some(2, len(steps), 1, 4, 4).double()  # the x_0 that is predicted
    left = torch.from_numpy(schedule.alphas_cumprod)[steps][:, None, None, None]
    said_noise = (x - left.sqrt() * other) / (1 - left).sqrt()
    said = target_of(other, said_noise, steps, schedule, target)  # type: ignore[arg-type]
    wanted = target_of(x0, noise, steps, schedule, target)  # type: ignore[arg-type]
    weight = min_snr_weight(steps, schedule, cap, target)  # type: ignore[arg-type]
    found = weight.double() * (said - wanted).square().mean(dim=(1, 2, 3))
    snr = (left / (1 - left)).flatten()
    expected = snr.clamp(max=cap) * (other - x0).square().mean(dim=(1, 2, 3))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-9)


def test_variance_fraction_the_log_variance() -> None:
    raw = torch.tensor([-1.0, 0.0, 1.0])
    assert variance_fraction(raw, "linear").tolist() == [0.0, 0.5, 1.0]
    torch.testing.assert_close(variance_fraction(raw, "sigmoid"), 1 / (1 + (-raw).exp()))


def bound(
    x0: torch.Tensor, x: torch.Tensor, guess: torch.Tensor, share: torch.Tensor, t: int, schedule: NoiseSchedule
) -> torch.Tensor:
    steps = torch.full((len(x),), t)
    return variational_bound(x0, x, guess, log_variance("learned_range", share, steps, schedule), steps, schedule)


def normal_cdf(x: np.ndarray) -> np.ndarray:
    """Page's approximation, that of published bits per dim."""
    return 1 / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def bound_by_hand(
    x0: np.ndarray, x: np.ndarray, guess: np.ndarray, share: np.ndarray, t: int, betas: np.ndarray
) -> float:
    """One image's term, in bits an element, from the definition of the two Gaussians."""
    alphas = 1 - betas
    left = np.cumprod(alphas)
    before = left[t - 1] if t else 1.0

    def mean(image: np.ndarray) -> np.ndarray:
        precision_prior, precision_like = 1 / (1 - before) if t else np.inf, alphas[t] / betas[t]
        if not t:
            return image
        # q(x_{t-1} | x_t, x_0) by Bayes: N(x_{t-1}; sqrt(before) x0, 1 - before) times N(x_t; sqrt(α) x_{t-1}, β).
        total = precision_prior + precision_like
        return (precision_prior * math.sqrt(before) * image + math.sqrt(alphas[t]) / betas[t] * x) / total

    def posterior_variance(s: int) -> float:
        return betas[s] * (1 - left[s - 1]) / (1 - left[s])

    low = math.log(posterior_variance(max(t, 1)))
    logvar = share * math.log(betas[t]) + (1 - share) * low
    if t:
        p, q = np.exp(logvar), math.exp(low)
        nats = 0.5 * (logvar - low) + (q + (mean(x0) - mean(guess)) ** 2) / (2 * p) - 0.5
    else:
        away, std = x0 - mean(guess), np.exp(0.5 * logvar)
        upper = np.where(x0 > 0.999, 1, normal_cdf((away + 1 / 255) / std))
        lower = np.where(x0 < -0.999, 0, normal_cdf((away - 1 / 255) / std))
        nats = -np.log(np.maximum(upper - lower, 1e-12))
    return float(nats.mean() / math.log(2))


@pytest.mark.parametrize("t", [0, 1, 30])
def test_the_bound_is_that_of_two_gaussians(schedule: NoiseSchedule, t: int) -> None:
    random = np.random.default_rng(t)
    x0 = np.round(random.uniform(-1, 1, (3, 4, 4)) * 127.5) / 127.5
    x0[0, 0, 0], x0[0, 0, 1] = 1.0, -1.0  # the open ends of the grey levels
    x = math.sqrt(schedule.alphas_cumprod[t]) * x0 + math.sqrt(1 - schedule.alphas_cumprod[t]) * random.standard_normal(
        x0.shape
    )
    guess, share = x0 + 0.02 * random.standard_normal(x0.shape), random.uniform(0, 1, x0.shape)
    tensors = [torch.from_numpy(each[None].astype(np.float32)) for each in (x0, x, guess, share)]
    found = bound(*tensors, t, schedule)
    expected = bound_by_hand(*(each[0].double().numpy() for each in tensors), t, schedule.betas)
    assert float(found[0]) == pytest.approx(expected, rel=2e-4, abs=2e-5)  # differences of float32 cdfs


@pytest.mark.parametrize(("loss", "teaches"), [("l2", False), ("kl", True), ("rescaled_kl", True)])
def test_the_bound_teaches_the_variance_alone_unless_it_is_the_loss(
    schedule: NoiseSchedule, loss: str, teaches: bool
) -> None:
    objective = Gaussian(schedule, loss=loss, variance="learned_range")  # type: ignore[arg-type]
    t, x0, noise = torch.tensor([0, 20]), some(0, 2, 1, 4, 4).clamp(-1, 1), some(1, 2, 1, 4, 4)
    output = some(2, 2, 2, 4, 4).requires_grad_()
    found = objective.losses(output, x0, noise, objective.add_noise(x0, noise, t), t)
    (grad,) = torch.autograd.grad(found["loss" if teaches else "bound"].sum(), output)
    assert bool((grad[:, :1] != 0).any()) == teaches
    assert bool((grad[:, 1:] != 0).any(dim=(1, 2, 3)).all())


def test_the_weight_of_the_bound_and_its_scale() -> None:
    """DiT adds the bound as it is, IDDPM T / 1000 times, and `rescaled_kl` is T times it."""
    schedule = NoiseSchedule.named("linear", 250)
    t, x0, noise = torch.tensor([3, 200]), some(0, 2, 1, 4, 4).clamp(-1, 1), some(1, 2, 1, 4, 4)
    output = some(2, 2, 2, 4, 4)

    def losses(**keys: Any) -> dict[str, torch.Tensor]:
        objective = Gaussian(schedule, variance="learned_range", **keys)
        return objective.losses(output, x0, noise, objective.add_noise(x0, noise, t), t)

    for weight, factor in ((1.0, 1.0), (0.001, 0.001), ("rescaled", 0.25)):
        found = losses(bound_weight=weight)
        torch.testing.assert_close(found["loss"], found["simple"] + factor * found["bound"])
    torch.testing.assert_close(losses(loss="rescaled_kl")["loss"], 250 * losses(loss="kl")["loss"])


@pytest.mark.parametrize("kind", ["fixed_small", "fixed_large"])
def test_a_fixed_variance_by_hand(kind: str) -> None:
    schedule = NoiseSchedule.named("linear", 10)
    left, betas = schedule.alphas_cumprod, schedule.betas
    found = log_variance(kind, None, torch.arange(10), schedule, 1).exp()  # type: ignore[arg-type]
    small = [betas[s] * (1 - left[s - 1]) / (1 - left[s]) for s in [1, *range(1, 10)]]
    expected = small if kind == "fixed_small" else [small[0], *betas[1:]]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
