"""The average of a module's weights: parameters averaged, everything else as it is now."""

import pytest
import torch
from torch import nn

from darkroom.training.ema import EMA


class Counting(nn.Module):
    """Two names for one weight, and a buffer that is another tensor after each pass."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)
        self.other.weight = self.one.weight
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.passes = self.passes + 1
        return self.other(self.one(x))


def test_shared_weights_are_averaged_under_both_names_and_buffers_are_those_of_now():
    module = Counting()
    ema = EMA({"net": module}, 0.5)
    first = module.one.weight.detach().clone()
    with torch.no_grad():
        module(torch.ones(1, 2))
        module.one.weight += 1.0
    ema.update(100)
    state = ema.state["net"]
    for name in ("one.weight", "other.weight"):
        assert torch.allclose(state[name], first + 0.5)
    assert state["passes"] == 1
    module(torch.ones(1, 2))
    ema.update(101)
    assert ema.state["net"]["passes"] == 2


@pytest.mark.parametrize("other", [False, True])
def test_applied_gives_the_averages_and_takes_them_back(other):
    module = nn.Linear(1, 1)
    ema = EMA({"net": module}, 0.0)
    given = {"net": {key: value + 3 for key, value in ema.state["net"].items()}} if other else None
    expected = {key: value.clone() for key, value in (given or ema.state)["net"].items()}
    with torch.no_grad():
        module.weight += 1
    own = module.weight.detach().clone()
    with pytest.raises(ValueError), ema.applied(given):
        assert torch.equal(module.weight, expected["weight"])
        raise ValueError
    assert torch.equal(module.weight, own)
