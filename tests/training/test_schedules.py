"""Learning rates as functions of the images seen."""

import pytest
import torch

from darkroom.training.schedules import learning_rate
from helpers import training


def test_one_cycle_is_that_of_torch():
    """At every update, torch's OneCycleLR of the same length: within 1e-6 of the highest rate (it counts steps - 1)."""
    settings = training(images=64_000, batch=32, learning_rate=0.002, schedule="one_cycle", warmup=19_200)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.002, total_steps=2001, pct_start=601 / 2001)
    for update in range(2000):
        ours = learning_rate(settings, update * 32)
        assert ours == pytest.approx(optimizer.param_groups[0]["lr"], abs=2e-6)
        optimizer.step()
        theirs.step()


def test_constant_and_cosine_warm_up_linearly():
    for schedule, end in (("constant", 1.0), ("cosine", 0.0)):
        settings = training(images=1000, batch=10, learning_rate=1.0, schedule=schedule, warmup=100)
        assert learning_rate(settings, 0) == 0
        assert learning_rate(settings, 50) == pytest.approx(0.5)
        assert learning_rate(settings, 100) == pytest.approx(1.0)
        assert learning_rate(settings, 1000) == pytest.approx(end)
    assert learning_rate(settings, 550) == pytest.approx(0.5)
