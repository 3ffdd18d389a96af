"""Parameter groups: which parameters decay, which have a rate of their own, and what a stop leaves of it."""

import pytest
import torch
from torch import nn

from darkroom.errors import DarkroomError
from darkroom.training.optimizer import (
    build_optimizer,
    check_groups,
    load_optimizer,
    optimizer_tensors,
    parameter_names,
)
from darkroom.training.train_state import set_rates
from helpers import training


class Scales(nn.Module):
    """A norm over whole images: its weight has three dimensions."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm([2, 3, 3])
        self.convolution = nn.Conv2d(2, 2, 1)
        self.batch = nn.BatchNorm2d(2)
        self.table = nn.Embedding(5, 4)
        self.tied = nn.Linear(4, 5)
        self.tied.weight = self.table.weight
        self.attention = nn.MultiheadAttention(4, 2, add_bias_kv=True)
        self.frozen = nn.Parameter(torch.zeros(2, 2), requires_grad=False)


def told(module, settings, name="net"):
    """What each parameter of a module gets: (weight decay, rate, schedule)."""
    names = parameter_names(module)
    optimizer = build_optimizer(module, settings, name)
    found = {
        names[parameter]: (group["weight_decay"], group["rate"], group["schedule"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert found.keys() == set(names.values())
    return found


def test_weight_decay_is_on_maps_alone():
    decayed = {name for name, (decay, *_) in told(Scales(), training(weight_decay=0.1)).items() if decay == 0.1}
    assert decayed == {"convolution.weight", "attention.in_proj_weight", "attention.out_proj.weight"}


def test_the_first_glob_that_matches_wins():
    groups = [
        {"match": "net/batch.*", "rate": 0.5},
        {"match": "net/*.weight", "weight_decay": 0.3, "schedule": "linear"},
        {"match": "net/batch.bias", "rate": 9.0},
        {"match": "other/*", "rate": 8.0},
    ]
    found = told(Scales(), training(weight_decay=0.1, groups=groups))
    assert found["batch.weight"] == found["batch.bias"] == (0.0, 0.5, None)
    assert found["convolution.weight"] == found["norm.weight"] == (0.3, 1.0, "linear")
    assert found["convolution.bias"] == (0.0, 1.0, None)
    assert found["attention.in_proj_weight"] == (0.1, 1.0, None)


def test_a_group_has_one_decay_for_maps_and_another_for_the_rest_unless_it_says():
    groups = [{"match": "*convolution*", "rate": 0.5}]
    found = told(Scales(), training(weight_decay=0.1, groups=groups))
    assert found["convolution.weight"] == (0.1, 0.5, None) and found["convolution.bias"] == (0.0, 0.5, None)


def test_rates_are_the_schedules_times_the_factors():
    groups = [{"match": "net/convolution.*", "rate": 0.25, "schedule": "linear"}, {"match": "*bias", "rate": 0.0}]
    settings = training(images=80, learning_rate=0.5, groups=groups)
    module = Scales()
    optimizer, names = build_optimizer(module, settings, "net"), parameter_names(module)
    set_rates(optimizer, settings, 40)
    rates = {names[parameter]: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    assert rates["convolution.weight"] == 0.5 * 0.5 * 0.25
    assert rates["norm.bias"] == 0.0 and rates["batch.weight"] == 0.5


def test_an_update_is_the_formula_of_adamw_in_each_group():
    """The first step of AdamW is w (1 - lr wd) - lr g / (|g| + eps): float64 beside it, to 1e-6."""
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    settings = training(learning_rate=0.1, weight_decay=0.2, groups=[{"match": "net/bias", "rate": 0.5}])
    optimizer = build_optimizer(module, settings, "net")
    before = {name: value.detach().double() for name, value in module.named_parameters()}
    set_rates(optimizer, settings, 0)
    (module(torch.randn(4, 3)) ** 2).mean().backward()
    optimizer.step()
    for name, rate, decay in (("weight", 0.1, 0.2), ("bias", 0.05, 0.0)):
        parameter = module.get_parameter(name)
        gradient = parameter.grad.double()
        expected = before[name] * (1 - rate * decay) - rate * gradient / (gradient.abs() + 1e-8)
        assert torch.allclose(parameter.detach().double(), expected, atol=1e-6)
    assert optimizer.param_groups[0]["fused"]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_betas_and_eps_are_those_of_the_training(optimizer):
    """Two updates by the formula in float64: m / (sqrt(v) + eps), both corrected for their start."""
    settings = training(betas=(0.6, 0.7), eps=0.05, learning_rate=0.1, optimizer=optimizer)
    module = nn.Linear(16, 16)
    optimizer = build_optimizer(module, settings, "net")
    bias, m, v = module.bias.detach().double(), 0.0, 0.0
    for step in (1, 2):
        gradient = torch.linspace(-1, 1, 16).double() * step
        module.weight.grad, module.bias.grad = torch.zeros(16, 16), gradient.float()
        optimizer.step()
        m, v = 0.6 * m + 0.4 * gradient, 0.7 * v + 0.3 * gradient**2
        bias = bias - 0.1 * (m / (1 - 0.6**step)) / ((v / (1 - 0.7**step)).sqrt() + 0.05)
        torch.testing.assert_close(module.bias.detach().double(), bias, atol=1e-6, rtol=1e-5)


def updates(module, optimizer, settings, images):
    for seen in images:
        torch.manual_seed(seen)
        set_rates(optimizer, settings, seen)
        optimizer.zero_grad()
        (module(torch.randn(4, 3)) ** 2).mean().backward()
        optimizer.step()


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def test_groups_survive_an_optimizer_that_is_built_again():
    """Stopped after 4 updates, built again from weights and state by name: the bits of an undisturbed training."""
    groups = [{"match": "net/2.*", "rate": 0.1, "schedule": "cosine"}, {"match": "*bias", "weight_decay": 0.5}]
    settings = training(weight_decay=0.1, groups=groups)
    whole = network()
    updates(whole, build_optimizer(whole, settings, "net"), settings, range(0, 64, 8))
    first = network()
    stopped = build_optimizer(first, settings, "net")
    updates(first, stopped, settings, range(0, 32, 8))
    saved = optimizer_tensors(stopped, parameter_names(first))
    saved = {name: value.clone() for name, value in reversed(saved.items())}
    second = network()
    second.load_state_dict(first.state_dict())
    again = build_optimizer(second, settings, "net")
    load_optimizer(again, parameter_names(second), saved)
    updates(second, again, settings, range(32, 64, 8))
    assert [g["rate"] for g in again.param_groups] == [g["rate"] for g in stopped.param_groups]
    for one, other in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_glob_without_a_parameter_is_named_with_the_nearest():
    modules = {"net": Scales(), "critic": nn.Linear(2, 1)}
    check_groups(modules, training(groups=[{"match": "net/convolution.*"}, {"match": "critic/*"}]))
    with pytest.raises(DarkroomError, match=r"`net/convolutoin\.\*` matches no parameter.*net/convolution\.weight"):
        check_groups(modules, training(groups=[{"match": "*"}, {"match": "net/convolutoin.*"}]))
    with pytest.raises(DarkroomError, match="matches no parameter"):
        check_groups(modules, training(groups=[{"match": "net/frozen"}]))


def test_a_group_that_earlier_ones_leave_nothing_is_named():
    with pytest.raises(DarkroomError, match=r"all that `net/0\.bias` matches is taken"):
        check_groups({"net": network()}, training(groups=[{"match": "net/*"}, {"match": "net/0.bias"}]))
