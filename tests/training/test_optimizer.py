"""Optimizers: which parameters decay, at which rates, and what a stop leaves of it."""

import pytest
import torch
from torch import nn

from darkroom.training.optimizer import (
    build_optimizer,
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


def test_weight_decay_is_on_maps_alone():
    module = Scales()
    names, groups = parameter_names(module), build_optimizer(module, training(weight_decay=0.1)).param_groups
    decays = {names[parameter]: group["weight_decay"] for group in groups for parameter in group["params"]}
    assert decays.keys() == set(names.values()) and {*decays.values()} == {0.0, 0.1}
    decayed = {name for name, decay in decays.items() if decay}
    assert decayed == {"convolution.weight", "attention.in_proj_weight", "attention.out_proj.weight"}


def test_rates_are_the_schedules_times_the_factor():
    settings = training(images=80, learning_rate=0.5, schedule="linear")
    optimizer = build_optimizer(Scales(), settings)
    set_rates(optimizer, settings, 40, 0.25)
    assert {group["lr"] for group in optimizer.param_groups} == {0.5 * 0.5 * 0.25}


def test_an_update_is_the_formula_of_adamw_in_each_group():
    """The first step of AdamW is w (1 - lr wd) - lr g / (|g| + eps): float64 beside it, to 1e-6."""
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    settings = training(learning_rate=0.1, weight_decay=0.2)
    optimizer = build_optimizer(module, settings)
    before = {name: value.detach().double() for name, value in module.named_parameters()}
    set_rates(optimizer, settings, 0)
    (module(torch.randn(4, 3)) ** 2).mean().backward()
    optimizer.step()
    for name, rate, decay in (("weight", 0.1, 0.2), ("bias", 0.1, 0.0)):
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
    optimizer = build_optimizer(module, settings)
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
    settings = training(weight_decay=0.1, schedule="cosine")
    whole = network()
    updates(whole, build_optimizer(whole, settings), settings, range(0, 64, 8))
    first = network()
    stopped = build_optimizer(first, settings)
    updates(first, stopped, settings, range(0, 32, 8))
    saved = optimizer_tensors(stopped, parameter_names(first))
    saved = {name: value.clone() for name, value in reversed(saved.items())}
    second = network()
    second.load_state_dict(first.state_dict())
    again = build_optimizer(second, settings)
    load_optimizer(again, parameter_names(second), saved)
    updates(second, again, settings, range(32, 64, 8))
    for one, other in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
