"""The DiT's recipe: randomness by position, labels dropped as asked, the loss as in the paper."""

import numpy as np
import pytest
import torch

from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators.conditions import START, UNKNOWN, asked_classes, balanced
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import DiTRecipe
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling
from darkroom.rng import random_numbers
from darkroom.training.recipe import Batch

SHAPE = (2, 4, 4)
SAMPLING = DiTSampling(solver="euler", steps=2, guidance=1.5)
MEAN, STD = [0.5, -1.0], [2.0, 3.0]


class Spy(DiT):
    """Keeps what it was called with."""

    def forward(self, x, time, labels):
        self.calls = [*getattr(self, "calls", []), (x, time, labels)]
        return super().forward(x, time, labels) + x


class Levels:
    """A tokenizer whose images show where a latent is positive."""

    latent_shape = SHAPE

    def decode(self, latents):
        return (latents > 0).to(torch.uint8)


def recipe(tokenizer=None, classes=5, **changes):
    settings = {"normalise": "channel", "time": "logit_normal", "time_mean": 0.2, "time_std": 0.7, "label_dropout": 0.3}
    torch.manual_seed(0)
    model = Spy(DiTConfig(2, 4, classes, 16, 1, 2, 2))
    return DiTRecipe(model, DiTDiffusion(**settings | changes), 9, [], [], LatentScaler(MEAN, STD), tokenizer, SAMPLING)


def batch(positions):
    rng = np.random.default_rng(0)
    count = 2000  # the same images for every choice of positions
    data = {
        "mean": torch.from_numpy(rng.normal(size=(count, *SHAPE)).astype(np.float32)),
        "logvar": torch.from_numpy(rng.normal(size=(count, *SHAPE)).astype(np.float32)),
        "labels": torch.arange(count) % 5,
    }
    return Batch(np.array(positions), {name: value[positions] for name, value in data.items()})


def test_the_loss_is_the_formula_in_float64():
    positions = list(range(6))
    made, given = recipe(label_dropout=0.0), batch(positions)
    found = made.loss(given)["loss"].item()
    mean, logvar = given.data["mean"].double().numpy(), given.data["logvar"].double().numpy()
    normals = random_numbers(9, "dit/train", positions, 65, 2)[0].astype(np.float64)
    posterior, noise = normals[:, :32].reshape(6, *SHAPE), normals[:, 32:64].reshape(6, *SHAPE)
    time = 1 / (1 + np.exp(-(0.2 + 0.7 * normals[:, 64])))
    x0 = (mean + np.exp(logvar / 2) * posterior - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None]
    t = time[:, None, None, None]
    xt = (1 - t) * x0 + t * noise  # an untrained DiT answers 0, and Spy adds x_t
    assert found == pytest.approx(((xt - (noise - x0)) ** 2).mean(), rel=1e-5)


def test_the_loss_of_the_noise_is_the_formula_in_float64():
    positions = list(range(6))
    flow = {"time_mean": 0.0, "time_std": 1.0}  # the defaults of what is not read here
    made = recipe(objective="gaussian", schedule="linear", timesteps=50, label_dropout=0.0, **flow)
    given = batch(positions)
    found = made.loss(given)["loss"].item()
    mean, logvar = given.data["mean"].double().numpy(), given.data["logvar"].double().numpy()
    normals, uniforms = (each.astype(np.float64) for each in random_numbers(9, "dit/train", positions, 65, 2))
    posterior, noise = normals[:, :32].reshape(6, *SHAPE), normals[:, 32:64].reshape(6, *SHAPE)
    left = np.cumprod(1 - np.linspace(0.002, 0.4, 50))[(50 * uniforms[:, 0]).astype(int)][:, None, None, None]
    x0 = (mean + np.exp(logvar / 2) * posterior - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None]
    xt = left**0.5 * x0 + (1 - left) ** 0.5 * noise  # an untrained DiT answers 0, and Spy adds x_t
    assert found == pytest.approx(((xt - noise) ** 2).mean(), rel=1e-5)


def test_an_image_meets_the_same_noise_time_and_label_in_any_batch():
    made = recipe()
    made.loss(batch([0, 1, 2, 3, 4, 5, 6, 7]))
    made.loss(batch([5, 6]))
    whole, part = made.model.calls
    for one, other in zip(whole[1:], part[1:], strict=True):
        assert torch.equal(one[5:7], other)
    # torch's exp rounds the tail of an array in another way than its vectorised part
    assert torch.allclose(whole[0][5:7], part[0], atol=1e-6)


def test_labels_are_dropped_as_often_as_asked_and_never_in_validation():
    made = recipe()
    many = batch(list(range(2000)))
    made.loss(many)
    made.validate(many)
    (_, _, trained), (_, _, validated) = made.model.calls
    share = (trained == made.model.null_label).double().mean().item()
    assert share == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 2000))
    kept = trained != made.model.null_label
    assert torch.equal(trained[kept], many.data["labels"][kept])
    assert torch.equal(validated, many.data["labels"])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_words_are_hidden_as_often_as_asked_and_never_in_validation(dropout):
    """Start, end and padding are never; which words are hidden follows from the place in the sequence."""
    made, many = recipe(word_dropout=dropout), batch(list(range(2000)))
    made.modules["dit"] = lambda x, time, condition: made.calls.append(condition) or x
    made.calls = []
    tokens = torch.tensor([START, 3, 8, 20, START + 1, 0]).expand(2000, -1)
    many = Batch(many.positions, {name: many.data[name] for name in ("mean", "logvar")} | {"caption": tokens})
    made.loss(many)
    made.loss(many)
    made.validate(many)
    trained, again, validated = (condition.tokens for condition in made.calls)
    hidden = trained == UNKNOWN
    assert hidden[:, 1:4].double().mean().item() == pytest.approx(dropout, abs=4 * np.sqrt(0.21 / 6000))
    assert torch.equal(hidden.any(dim=0), dropout * torch.tensor([0, 1, 1, 1, 0, 0]) > 0)
    assert torch.equal(trained, again) and torch.equal(trained[~hidden], tokens[~hidden])
    assert torch.equal(validated, tokens)


def test_validation_is_the_same_each_time_and_unlike_training():
    made, given = recipe(label_dropout=0.0), batch(list(range(8)))
    first, again = made.validate(given)["loss"], made.validate(given)["loss"]
    assert torch.equal(first, again) and first.mean() != made.loss(given)["loss"]


def test_validation_tells_the_loss_by_bands_of_the_time():
    """Each image lies in one band, by its time, and the bands together are the whole."""
    made, given = recipe(label_dropout=0.0), batch(list(range(400)))
    found = made.validate(given)
    time = made.model.calls[-1][1] / 1000
    bands = {name: values for name, values in found.items() if name != "loss"}
    assert list(bands) == ["loss_time_0_25", "loss_time_25_50", "loss_time_50_75", "loss_time_75_100"]
    for number, values in enumerate(bands.values()):
        inside = (time * 4).floor().clamp(max=3) == number
        assert torch.equal(values, found["loss"][inside]) and len(values) > 5
    assert sum(map(len, bands.values())) == 400


def test_the_scaler_gives_unit_variance_and_goes_back():
    scaler = LatentScaler(MEAN, STD)
    latents = torch.randn(4000, *SHAPE) * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    unit = scaler(latents)
    assert unit.mean(dim=(0, 2, 3)).abs().max() < 0.02 and (unit.std(dim=(0, 2, 3)) - 1).abs().max() < 0.02
    assert torch.allclose(scaler.invert(unit), latents, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_preview_is_guided_where_labels_were_dropped(dropout):
    """Where none was, no training has taught the null class anything, and no image is led away from it."""
    made = recipe(Levels(), label_dropout=dropout)
    with torch.no_grad():
        assert made.preview().shape == (50, *SHAPE)
    labels = torch.arange(50) % 5
    assert made.columns == 5  # of the grid: a class a column, of so few classes too
    asked = torch.cat([labels, torch.full_like(labels, made.model.null_label)]) if dropout else labels
    assert made.model.calls and all(torch.equal(call[2], asked) for call in made.model.calls)


@torch.no_grad()
def test_images_of_one_class_stand_ten_in_a_row():
    made = recipe(Levels(), classes=1, label_dropout=0.0)
    assert made.preview().shape == (100, *SHAPE) and made.sample_evolution().shape == (10, *SHAPE)
    assert made.columns == 10 and not made.by_class  # no class is the name of a column
    assert all((call[2] == 0).all() for call in made.model.calls)


@torch.no_grad()
def test_the_sample_evolution_is_the_first_row_of_the_preview():
    """One image of each class, from the same noise whenever it is drawn."""
    made = recipe(Levels())
    made.conditions = asked_classes(balanced(5))  # as in the stage
    row = made.sample_evolution()
    assert made.by_class and row.shape == (5, *SHAPE)
    np.testing.assert_array_equal(row, made.preview()[:5])
    np.testing.assert_array_equal(row, made.sample_evolution())
