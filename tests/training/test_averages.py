"""Averages of weights: parameters are averaged, buffers are copied."""

import pytest
import torch
from torch import nn

from darkroom.training.averages import Average, constant_decay


class Counting(nn.Module):
    """Two names for one weight, and a buffer that is another tensor after each pass."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)
        self.other.weight = self.one.weight
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes = self.passes + 1
        return self.other(self.one(x))


def test_shared_weights_are_averaged_under_both_names_and_buffers_are_those_of_now():
    module = Counting()
    average = Average({"net": module}, constant_decay(0.5))
    first = module.one.weight.detach().clone()
    with torch.no_grad():
        module(torch.ones(1, 2))
        module.one.weight += 1.0
    average.update(100)
    state = average.state["net"]
    for name in ("one.weight", "other.weight"):
        assert torch.allclose(state[name], first + 0.5)
    assert state["passes"] == 1
    module(torch.ones(1, 2))
    average.update(101)
    assert average.state["net"]["passes"] == 2


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [0.1, 2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15]),
        ({"warmup": False}, [0.9] * 6),
        ({"start": 2}, [0, 0, 0.1, 2 / 11, 3 / 12, 4 / 13]),
        ({"every": 2}, [0.1, 1, 2 / 11, 1, 3 / 12, 1]),
    ],
)
def test_the_decay_of_each_step(keys, expected):
    decay = constant_decay(0.9, **keys)
    assert [decay(step) for step in range(6)] == pytest.approx(expected)
    assert decay(10_000) in (0.9, 1.0)


def test_an_average_waits_and_begins_with_the_weights_of_its_start():
    module = nn.Linear(1, 1, bias=False)
    average = Average({"net": module}, constant_decay(0.5, warmup=False, start=2, every=2))
    found = []
    for step in range(6):
        with torch.no_grad():
            module.weight.fill_(step)
        average.update(step)
        found.append(average.state["net"]["weight"].item())
    assert found == [0, 1, 1.5, 1.5, 2.75, 2.75]


@pytest.mark.parametrize("other", [False, True])
def test_applied_gives_the_averages_and_takes_them_back(other):
    module = nn.Linear(1, 1)
    average = Average({"net": module}, constant_decay(0.0))
    given = {"net": {key: value + 3 for key, value in average.state["net"].items()}} if other else None
    expected = {key: value.clone() for key, value in (given or average.state)["net"].items()}
    with torch.no_grad():
        module.weight += 1
    own = module.weight.detach().clone()
    with pytest.raises(ValueError), average.applied(given):
        assert torch.equal(module.weight, expected["weight"])
        raise ValueError
    assert torch.equal(module.weight, own)
