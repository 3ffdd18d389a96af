"""The adversarial losses against formulas in float64, the weight by autograd, the penalty by finite differences."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from darkroom.models.tokenizers.adversarial import (
    Adversary,
    Outputs,
    PatchDiscriminator,
    adaptive_weight,
    discriminator_loss,
    generator_loss,
    gradient_penalty,
)
from darkroom.models.tokenizers.sections import Adversarial, Perceptual, unfit_losses
from darkroom.training.recipe import Batch
from helpers import training

OFF = {
    "weight": 0.5,
    "loss": "hinge",
    "start": 0,
    "adaptive": "none",
    "channels": [4, 8],
    "norm_groups": 4,
    "lr_scale": 1.0,
    "betas": (0.5, 0.9),
    "clip_norm": None,
    "gradient_penalty": 0.0,
    "gradient_penalty_every": 1,
}


def section(**changes):
    return Adversarial(**OFF | changes)


def logits():
    draw = np.random.default_rng(0)
    return draw.normal(0, 2, (3, 1, 5, 5)), draw.normal(0, 2, (3, 1, 5, 5))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_each_loss_of_the_discriminator_is_its_formula():
    real, fake = logits()
    hinge = np.maximum(0, 1 - real).mean() + np.maximum(0, 1 + fake).mean()
    cross_entropy = -np.log(sigmoid(real)).mean() - np.log(1 - sigmoid(fake)).mean()
    for kind, expected in {"hinge": hinge / 2, "hinge_sum": hinge, "bce": cross_entropy}.items():
        found = discriminator_loss(kind, torch.from_numpy(real).float(), torch.from_numpy(fake).float())
        assert found.item() == pytest.approx(expected, rel=1e-6)


def test_each_loss_of_the_generator_is_its_formula():
    fake = logits()[1]
    for kind, expected in {
        "hinge": -fake.mean(),
        "hinge_sum": -fake.mean(),
        "bce": -np.log(sigmoid(fake)).mean(),
    }.items():
        assert generator_loss(kind, torch.from_numpy(fake).float()).item() == pytest.approx(expected, rel=1e-5)


def penalty_by_differences(network, images, step=1e-6):
    """Return E (||∇D|| - 1)² of a network in float64, its gradient by central differences, pixel by pixel."""
    norms = []
    with torch.no_grad():
        for image in images:
            gradient = []
            for place in range(image.numel()):
                moved = [image.clone().flatten() for _ in range(2)]
                moved[0][place] += step
                moved[1][place] -= step
                up, down = (network(each.view(1, *image.shape)).sum().item() for each in moved)
                gradient.append((up - down) / (2 * step))
            norms.append(math.sqrt(sum(value**2 for value in gradient)))
    return np.mean([(norm - 1) ** 2 for norm in norms])


def test_the_gradient_penalty_is_that_of_finite_differences():
    torch.manual_seed(0)
    network, images = PatchDiscriminator(1, [4, 4], 2), torch.rand(2, 1, 8, 8) * 2 - 1
    found = gradient_penalty(network, images)
    exact = PatchDiscriminator(1, [4, 4], 2).double()
    exact.load_state_dict({name: value.double() for name, value in network.state_dict().items()})
    assert found.item() == pytest.approx(penalty_by_differences(exact, images.double()), rel=1e-4)
    found.backward()
    assert all(p.grad is not None for name, p in network.named_parameters() if name.endswith("weight"))
    # And what trains the network: the penalty's gradient in a weight before the norm, and in one behind it.
    for name, place in (("layers.0.weight", 12), ("layers.5.weight", 3)):
        weight, around = exact.get_parameter(name).data.view(-1), []
        own = weight[place].item()
        for moved in (own + 1e-4, own - 1e-4):
            weight[place] = moved
            around.append(penalty_by_differences(exact, images.double()))
        weight[place] = own
        gradient = network.get_parameter(name).grad.flatten()[place].item()
        assert abs(gradient) > 1e-3 and gradient == pytest.approx((around[0] - around[1]) / 2e-4, rel=1e-3), name


def test_adaptive_weights_are_the_ratios_of_norms():
    draw = np.random.default_rng(1)
    others, generator = draw.normal(size=(4, 3)), draw.normal(size=(4, 3)) * 1e-3
    tensors = [torch.from_numpy(each).float() for each in (others, generator)]
    ratio = np.linalg.norm(others) / np.linalg.norm(generator)
    taming = np.linalg.norm(others) / (np.linalg.norm(generator) + 1e-4)
    assert adaptive_weight("taming", *tensors).item() == pytest.approx(taming, rel=1e-6)
    assert adaptive_weight("perceptual", *tensors).item() == pytest.approx(ratio, rel=1e-6)
    none = torch.zeros(4, 3)
    assert adaptive_weight("taming", tensors[0] * 1e6, none) == adaptive_weight("perceptual", tensors[0], none) == 1e4


class Game:
    """A generator of one layer against an adversary, as a recipe plays it."""

    def __init__(self, settings, batch=4):
        torch.manual_seed(0)
        self.modules = {"tokenizer": nn.Conv2d(1, 1, 3, padding=1)}
        training = type("Training", (), {"batch": batch})
        self.adversary = Adversary(settings, training, 1, self.modules)

    def make(self, batch):
        real = batch.data["x"]
        fake = self.modules["tokenizer"](real)
        error = (fake - real).square().mean()
        return Outputs(real, fake, error, 0.25 * error.sqrt())

    def loss(self, batch):
        made = self.make(batch)
        last = self.modules["tokenizer"].weight
        return self.adversary.add({"loss": made.others}, batch, made, last)


def batch(first=0, size=4):
    images = torch.rand(size, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 2 - 1
    return Batch(np.arange(first, first + size), {"x": images})


@pytest.mark.parametrize("rule", ["taming", "perceptual"])
def test_the_weight_is_that_of_autograd_in_float64(rule):
    game, given = Game(section(adaptive=rule)), batch()
    found = game.loss(given)
    layer, network = (
        type(module)(*arguments).double()
        for module, arguments in (
            (game.modules["tokenizer"], (1, 1, 3, 1, 1)),
            (game.adversary.network, (1, [4, 8], 4)),
        )
    )
    layer.load_state_dict({k: v.double() for k, v in game.modules["tokenizer"].state_dict().items()})
    network.load_state_dict({k: v.double() for k, v in game.adversary.network.state_dict().items()})
    real = given.data["x"].double()
    fake = layer(real)
    error, term = (fake - real).square().mean(), -network(fake).mean()
    numerator = error if rule == "taming" else 0.25 * error.sqrt()
    over, under = (torch.autograd.grad(loss, layer.weight, retain_graph=True)[0].norm() for loss in (numerator, term))
    weight = 0.5 * (over / (under + 1e-4) if rule == "taming" else over / under)
    assert found["adversarial_weight"].item() == pytest.approx(weight.item(), rel=1e-5)
    assert found["loss"].item() == pytest.approx((error + weight * term).item(), rel=1e-5)


def test_micro_batches_give_the_gradients_of_the_whole():
    gradients = {}
    for size in (4, 3, 1):
        game, given = Game(section(gradient_penalty=10.0)), batch()
        pieces = given.split(size)
        for turn, module in ((game.loss, "tokenizer"), (game.adversary.loss, "discriminator")):
            game.modules[module].zero_grad()
            for piece in pieces:
                (turn(piece)["loss"] * (len(piece) / 4)).backward()
            gradients[size, module] = torch.cat([p.grad.flatten() for p in game.modules[module].parameters()])
    for (_, module), found in gradients.items():
        torch.testing.assert_close(found, gradients[4, module], rtol=1e-4, atol=1e-6)


def test_before_its_start_the_discriminator_adds_nothing():
    game = Game(section(start=6))
    assert "adversarial" not in game.loss(batch(4)) and "adversarial" in game.loss(batch(8))
    assert game.adversary.phases[0].start == 6


def test_the_penalty_comes_on_every_nth_turn():
    game = Game(section(start=6, gradient_penalty=10.0, gradient_penalty_every=3))
    penalised = []
    for first in range(8, 40, 4):  # the first update that begins after 6 images is the one at 8
        given = batch(first)
        game.loss(given)
        losses = game.adversary.loss(given)
        if "discriminator/penalty" in losses:
            penalised.append(first)
            real, fake = (
                game.adversary.network(x) for x in (batch().data["x"], game.modules["tokenizer"](batch().data["x"]))
            )
            plain = discriminator_loss("hinge", real, fake)
            torch.testing.assert_close(losses["loss"], plain + 10 * losses["discriminator/penalty"])
    assert penalised == [8, 20, 32]


def test_the_discriminator_is_not_trained_by_the_generator_nor_the_generator_by_it():
    game = Game(section())
    given = batch()
    game.loss(given)["loss"].backward()
    assert all(p.grad is None and p.requires_grad for p in game.adversary.network.parameters())
    assert game.modules["tokenizer"].weight.grad is not None
    game.modules["tokenizer"].zero_grad()
    game.adversary.loss(given)["loss"].backward()
    assert game.modules["tokenizer"].weight.grad is None
    assert all(p.grad is not None for p in game.adversary.network.parameters())


def test_under_autocast_the_penalty_is_in_float32():
    torch.manual_seed(0)
    network, images = PatchDiscriminator(1, [4, 4], 2), torch.rand(2, 1, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradient_penalty(network, images)
    assert found.item() == gradient_penalty(network, images).item()


@pytest.mark.parametrize(("size", "channels", "side"), [(16, [4, 8, 8], 1), (32, [4, 8, 8], 5)])
def test_logits_are_one_a_patch(size, channels, side):
    assert PatchDiscriminator(3, channels, 4)(torch.zeros(2, 3, size, size)).shape == (2, 1, side, side)


def test_sections_that_contradict_themselves():
    with pytest.raises(ValueError, match="must divide every width"):
        section(channels=[4, 6])
    with pytest.raises(ValueError, match="weight needs a network"):
        Perceptual(network="none", weight=0.5)
    (reason,) = unfit_losses(Perceptual(network="none", weight=0.0), section(adaptive="perceptual"))
    assert "there is no perceptual loss" in reason
    with pytest.raises(ValueError, match=r"has no effect at weight 0\.0"):
        Perceptual(network="teacher", weight=0.0)
    assert not [*unfit_losses(Perceptual(network="none", weight=0.0), section(adaptive="perceptual", weight=0.0))]


@pytest.mark.slow
def test_compiled_networks_play_the_same_game():
    """torch.compile cannot differentiate twice, which the penalty asks; taming asks for gradients inside a turn."""
    found = []
    for compiled in (False, True):
        game, given = Game(section(adaptive="taming", gradient_penalty=10.0)), batch()
        if compiled:
            for module in game.modules.values():
                module.compile(backend="aot_eager")
        for turn, module in ((game.loss, "tokenizer"), (game.adversary.loss, "discriminator")):
            game.modules[module].zero_grad()
            turn(given)["loss"].backward()
            found.append(torch.cat([p.grad.flatten() for p in game.modules[module].parameters()]))
    torch.testing.assert_close(found[2], found[0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found[3], found[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("given", "limit"), [(None, None), (0.5, 0.5), ("none", float("inf"))])
def test_the_discriminator_is_clipped_as_its_section_says(given, limit):
    """None: as the training; infinity: not at all (`Phase.clip_norm`)."""
    made = Adversary(section(clip_norm=given), training(), 3, {})
    assert made.phases[0].clip_norm == limit
