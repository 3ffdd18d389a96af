"""Noise schedules against their formulas, step by step in Python's floats."""

import math

import numpy as np
import pytest
import torch

from darkroom.diffusion.schedules import NoiseSchedule


def by_hand(name: str, steps: int) -> list[float]:
    low, high = 0.1 / steps, 20 / steps
    betas = []
    for t in range(steps):
        at = t / (steps - 1)
        if name == "cosine":
            f = [math.cos(((t + more) / steps + 0.008) / 1.008 * math.pi / 2) ** 2 for more in (0, 1)]
            betas.append(1 - f[1] / f[0])
        elif name == "linear":
            betas.append(low + (high - low) * at)
        elif name == "quadratic":
            betas.append((math.sqrt(low) + (math.sqrt(high) - math.sqrt(low)) * at) ** 2)
        elif name == "jsd":
            betas.append(1 / (steps - t))
        else:
            betas.append(low + (high - low) / (1 + math.exp(6 - 12 * at)))
    return [min(beta, 0.999) for beta in betas]


@pytest.mark.parametrize("name", ["cosine", "linear", "quadratic", "jsd", "sigmoid"])
def test_betas_follow_the_formulas(name: str) -> None:
    found = NoiseSchedule.named(name, 50).betas  # type: ignore[arg-type]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, by_hand(name, 50), rtol=1e-9)


def test_tables_that_follow() -> None:
    schedule = NoiseSchedule.named("linear", 10)
    left = 1.0
    for t, beta in enumerate(schedule.betas):
        before, left = left, left * (1 - beta)
        assert schedule.alphas_cumprod[t] == pytest.approx(left, rel=1e-12)
        assert schedule.posterior_variance[t] == pytest.approx(beta * (1 - before) / (1 - left), rel=1e-12, abs=0)
        assert schedule.snr[t] == pytest.approx(left / (1 - left), rel=1e-12)


def test_noise_keeps_the_variance_and_follows_each_images_own_step() -> None:
    schedule = NoiseSchedule.named("cosine", 100)
    x0, noise = torch.ones(2, 1, 2, 2), torch.full((2, 1, 2, 2), 2.0)
    found = schedule.add_noise(x0, noise, torch.tensor([0, 99]))
    for row, step in enumerate((0, 99)):
        left = schedule.alphas_cumprod[step]
        expected = math.sqrt(left) + 2 * math.sqrt(1 - left)
        torch.testing.assert_close(found[row], torch.full((1, 2, 2), expected))
