"""Augmentation that does not leak: what T does, what the network reads of it, and that nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from darkroom.diffusion.flow import PATHS, Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.scalers import LatentScaler
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.models.generators.dit.augment import NUMBERS, Augmentation
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import DiTRecipe, config_of
from darkroom.models.generators.dit.sample import DiTSampler
from darkroom.models.generators.dit.settings import Augment, DiTDiffusion, DiTSampling
from darkroom.models.generators.dit.settings import DiT as Settings
from darkroom.training.recipe import Batch

SIDE, SHAPE = 8, (2, 8, 8)
CONFIG = DiTConfig(2, 8, 5, 16, 2, 2, 2)
OFTEN = Augment(probability=0.6)
ALL = ("mirror", "turn", "translation", "cutout")


def drawn(settings=OFTEN, positions=range(200), seed=3):
    return Augmentation.drawn(settings, seed, list(positions), SIDE)


def by_the_condition(x, condition):
    """Return what c says of T, of one latent (C, S, S), place by place."""
    mirrored, cos, sin, down, right, cut, row, column = condition
    if mirrored:
        x = np.flip(x, axis=2)
    quarters = {(0, 0): 0, (-1, 1): 1, (-2, 0): 2, (-1, -1): 3}[round(float(cos)), round(float(sin))]
    x = np.rot90(x, quarters, axes=(1, 2))
    made = np.zeros_like(x)
    for i in range(SIDE):
        for j in range(SIDE):
            above, left = i - round(2 * float(down)), j - round(2 * float(right))  # 2: a quarter of the side
            hole = cut and 0 <= i - SIDE * row < 4 and 0 <= j - SIDE * column < 4
            if 0 <= above < SIDE and 0 <= left < SIDE and not hole:
                made[:, i, j] = x[:, above, left]
    return made


@pytest.mark.parametrize("transforms", [[each] for each in ALL] + [list(ALL)], ids=lambda names: "-".join(names))
def test_the_condition_says_what_is_done(transforms):
    x = np.random.default_rng(0).standard_normal((200, *SHAPE))
    found = drawn(Augment(probability=0.6, transforms=transforms))
    expected = [by_the_condition(*row) for row in zip(x, found.condition.numpy(), strict=True)]
    np.testing.assert_array_equal(found(torch.from_numpy(x)).numpy(), np.stack(expected))
    columns = {"mirror": [0], "turn": [1, 2], "translation": [3, 4], "cutout": [5, 6, 7]}
    used = sorted(number for name in transforms for number in columns[name])
    assert found.condition.any(dim=0).nonzero().flatten().tolist() == used
    same = ~found.condition.any(dim=1)
    assert same.any() and torch.equal(found(torch.from_numpy(x))[same], torch.from_numpy(x)[same])


def targets():
    for path in PATHS:
        for target in ("velocity", "eps", "x0", "score"):
            yield Flow(path=path, target=target)
    for target in ("eps", "x0", "v"):
        yield Gaussian(NoiseSchedule.named("cosine", 50), target)


@pytest.mark.parametrize("objective", list(targets()), ids=lambda o: f"{type(o).__name__}-{o.target}")
def test_transformed_data_and_noise_give_the_transformed_target(objective):
    """In float64: T(x_t) is made of T(x_0) and T(ε), and T of what is to be predicted of x_t has no error."""
    rng = np.random.default_rng(1)
    x0, noise = torch.from_numpy(rng.standard_normal((2, 200, *SHAPE)))
    t = objective.times(rng.uniform(0.1, 0.9, 200))
    if t.is_floating_point():
        t = t.double()
    found = drawn()
    x = objective.add_noise(x0, noise, t)
    torch.testing.assert_close(objective.add_noise(found(x0), found(noise), t), found(x), rtol=1e-12, atol=1e-12)
    alpha, sigma = (level.view(-1, 1, 1, 1) for level in objective.levels(t))
    output = {"eps": noise, "x0": x0, "score": -noise / sigma, "v": alpha * noise - sigma * x0}.get(objective.target)
    if output is None:
        levels = PATHS[objective.path](t.view(-1, 1, 1, 1))
        output = levels.alpha_rate * x0 + levels.sigma_rate * noise
    losses = objective.losses(found(output), found(x0), found(noise), found(x), t)
    assert losses["loss"].max() < 1e-10
    assert objective.losses(output, found(x0), found(noise), found(x), t)["loss"].max() > 0.1


def test_transforms_follow_from_seed_and_position():
    whole, part = drawn(), drawn(positions=[70, 5, 6])
    for one, other in zip(whole, part, strict=True):
        assert torch.equal(one[[70, 5, 6]], other)
    assert not torch.equal(whole.condition, drawn(seed=4).condition)


def test_each_transform_is_taken_as_often_as_asked_and_by_itself():
    settings = Augment(probability=0.15)
    many = drawn(settings, range(4000)).condition
    taken = torch.stack([many[:, 0] != 0, many[:, 1] != 0, many[:, 3:5].any(dim=1), many[:, 5] != 0]).double()
    rate = torch.tensor([0.15, 0.15, 0.15 * 24 / 25, 0.15]).double()  # one of 25 translations is by nothing
    torch.testing.assert_close(taken.mean(1), rate, rtol=0, atol=4 * (0.15 * 0.85 / 4000) ** 0.5)
    both = (taken[:, None] * taken[None]).mean(2).masked_select(~torch.eye(4, dtype=torch.bool))
    assert (both - 0.15**2).abs().max() < 4 * (0.15**2 / 4000) ** 0.5
    assert len(many[:, 1:3].unique(dim=0)) == 4 and len(many[:, 3:5].unique(dim=0)) == 25
    assert len(many[:, 6:].unique(dim=0)) == 25  # places of a square of 4 in 8


def test_one_transform_less_leaves_the_others():
    less = drawn(Augment(probability=0.6, transforms=["mirror", "cutout"])).condition
    assert torch.equal(less[:, [0, 5, 6, 7]], drawn().condition[:, [0, 5, 6, 7]])


def test_transforms_that_nothing_reads_are_refused():
    with pytest.raises(ValueError, match=r"transforms is read with probability only"):
        Augment(transforms=["mirror"])
    with pytest.raises(ValueError, match="transforms"):
        Augment(probability=0.1, transforms=[])


# ---------------------------------------------------------------------------------------------------------------------
# The network and its training


class Spy(DiT):
    """Keeps what it was called with."""

    def forward(self, *given, augmented=None):
        self.calls = [*getattr(self, "calls", []), given if augmented is None else (*given, augmented)]
        return super().forward(*given, augmented)


def recipe(augment=None, network=Spy, **diffusion):
    torch.manual_seed(0)
    model = network(replace(CONFIG, augmented=NUMBERS if augment else 0))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in (value for name, value in model.named_parameters() if name != "augment"):
            parameter.add_(0.05 * torch.randn_like(parameter))
    settings = DiTDiffusion(**{"normalise": "channel", "label_dropout": 0.3} | diffusion)
    scaler = LatentScaler([0.5, -1.0], [2.0, 3.0])
    return DiTRecipe(model, settings, 9, [], [], scaler, None, DiTSampling(), augment=augment)


def batch(positions):
    rng = np.random.default_rng(0)
    mean, logvar = torch.from_numpy(rng.standard_normal((2, 50, *SHAPE)).astype(np.float32))
    data = {"mean": mean, "logvar": logvar, "labels": torch.arange(50) % 5}
    return Batch(np.array(positions), {name: value[positions] for name, value in data.items()})


def test_off_nothing_is_another():
    """No parameter more, no other number at the start: a training of before goes on as it began."""
    off, on = recipe(), recipe(OFTEN)
    assert off.model.state_dict().keys() == on.model.state_dict().keys() - {"augment"}
    for name, value in off.model.state_dict().items():
        assert torch.equal(value, on.model.state_dict()[name])
    off.loss(batch(range(8)))
    assert len(off.model.calls[0]) == 3
    assert config_of(Settings(), 2, 8, 5).augmented == 0
    assert config_of(Settings(augment=OFTEN), 2, 8, 5).augmented == NUMBERS


@pytest.mark.parametrize("objective", ["flow", "gaussian"])
def test_noise_times_and_labels_are_those_of_a_training_without(objective):
    off, on = recipe(objective=objective), recipe(OFTEN, objective=objective)
    for made in (off, on):
        made.loss(batch(range(50)))
    (plain, *rest), (x, *others, condition) = off.model.calls[0], on.model.calls[0]
    found = drawn(OFTEN, range(50), seed=9)
    assert torch.equal(x, found(plain)) and not torch.equal(x, plain)
    assert all(torch.equal(one, other) for one, other in zip(rest, others, strict=True))
    assert torch.equal(condition, found.condition)


def test_an_image_meets_the_same_transform_in_any_batch():
    made = recipe(OFTEN)
    whole, *parts = (made.loss(batch(each))["loss"].item() for each in (range(8), range(3), range(3, 8)))
    assert torch.equal(made.model.calls[0][3], torch.cat([call[3] for call in made.model.calls[1:]]))
    assert whole == pytest.approx((3 * parts[0] + 5 * parts[1]) / 8, rel=1e-5)


def test_validation_is_that_of_a_training_without():
    off, on = recipe(), recipe(OFTEN)
    torch.nn.init.normal_(on.model.augment)
    one, other = (made.validate(batch(range(50))) for made in (off, on))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_condition_reaches_the_output_and_zeros_add_nothing():
    model = recipe(OFTEN, DiT).model.eval()
    x, t, y = torch.randn(2, *SHAPE), torch.tensor([10.0, 900.0]), torch.tensor([3, 5])
    plain, told = model(x, t, y), drawn(positions=range(2)).condition
    assert told.any() and torch.equal(model(x, t, y, told), plain)  # it begins as nothing
    model(x, t, y, told).square().sum().backward()
    assert model.augment.grad.abs().max() > 0
    torch.nn.init.normal_(model.augment)
    assert torch.equal(model(x, t, y, torch.zeros(2, NUMBERS)), plain)
    assert (model(x, t, y, told) - plain).abs().max() > 1e-3


def test_what_is_sampled_reads_no_condition(tmp_path):
    """After a file, too: the latents are those of the network without it."""
    on = recipe(OFTEN, DiT).model
    torch.nn.init.normal_(on.augment)
    on.save_pretrained(tmp_path)
    noise, labels = torch.randn(3, *SHAPE), torch.arange(3)
    made = []
    for model in (DiT.from_pretrained(tmp_path), recipe(None, DiT).model.eval()):
        sampler = DiTSampler(model, recipe().objective, LatentScaler([0, 0], [1, 1]), None)
        with torch.no_grad():
            made.append(sampler.latents(noise, labels, [1, 2, 3], DiTSampling(steps=3, guidance=1.5)))
    assert torch.equal(*made)
