"""What an update computes and holds, by hand: parameters, operations, bytes."""

import pytest
import torch
from torch import nn

from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators.dit.network import DiT, DiTConfig
from darkroom.models.generators.dit.recipe import DiTRecipe
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling
from darkroom.tools.plan.rows import NoiseImages, NoiseLatents
from darkroom.tools.plan.step import Step
from darkroom.training.recipe import Phase, Recipe
from helpers import run, training

SAMPLING = DiTSampling(solver="euler", steps=25, guidance=1.5)

CPU = torch.device("cpu")
IN, OUT, LAYERS = 12, 5, 4


class Linear(Recipe):
    """One linear map of 2x2 images of 3 channels; counts the passes."""

    def __init__(self, depth=0):
        layers = [nn.Sequential(nn.Linear(IN, IN), nn.Tanh()) for _ in range(LAYERS * depth)]
        self.blocks = [nn.Sequential(*layers[at * LAYERS : (at + 1) * LAYERS]) for at in range(depth)]
        model = nn.Sequential(*self.blocks, nn.Linear(IN, OUT))
        self.modules = {"linear": model}
        self.phases = (Phase("linear", self.loss),)
        self.train = self.val = NoiseImages(20, (3, 2, 2), 4)
        self.passes = []

    def loss(self, batch):
        self.passes.append(len(batch))
        return {"loss": self.modules["linear"](batch.data["images"].flatten(1).float()).square().mean()}

    def validate(self, batch):
        return self.loss(batch)


def test_parameters_are_the_sum_over_the_model():
    recipe = Linear(depth=2)
    step = Step(recipe, training(), run(), CPU)
    assert step.parameters == sum(p.numel() for p in recipe.modules["linear"].parameters()) == 2 * LAYERS * 156 + 65


def test_operations_of_a_linear_layer():
    """y = x Wᵀ: 2 · N · in · out. Backward: the same for W's gradient; the images need none."""
    assert Step(Linear(), training(batch=8), run(), CPU).operations() == (2 * 8 * IN * OUT, 2 * 8 * IN * OUT)


def test_operations_are_the_same_on_paper():
    def on(device):
        with device:
            return Step(Linear(depth=2), training(), run(), device)

    meta, real = on(torch.device("meta")), on(CPU)
    assert meta.operations() == real.operations() and meta.memory == real.memory
    assert meta.activations() == pytest.approx(real.activations(), rel=0.05)


def test_memory_of_weights_gradients_optimizer_and_averages():
    weights = 4 * (IN * OUT + OUT)
    expected = {"weights": weights, "gradients": weights, "optimizer": 2 * weights + 2 * 4, "averages": weights}
    step = Step(Linear(), training(), run(), CPU)
    assert step.memory == expected
    more = Step(Linear(), training(ema_profiles=[0.05, 0.1], select="best", processes=2), run(), CPU)
    assert more.memory == expected | {"averages": 4 * weights, "exchange": weights} and more.images == 4


def test_checkpointing_and_smaller_micro_batches_take_less_memory():
    settings = training(batch=512, images=512)
    live = {
        name: Step(Linear(depth=8), settings, run(**changes), CPU).activations()
        for name, changes in {
            "all": {},
            "micro": {"micro_batch": 128},
            "checkpointed": {"activation_checkpointing": True},
        }.items()
    }
    one = 512 * IN * 4  # bytes of the results of one layer
    assert live["all"] > 8 * LAYERS * one  # tanh keeps its result, which the next layer needs, too
    assert live["micro"] < live["all"] / 2 and live["checkpointed"] < (8 + 2 * LAYERS + 4) * one < live["all"]


def test_noise_has_the_shapes_and_types_of_the_real_rows():
    images = NoiseImages(7, (3, 4, 4), 10).__getitems__(range(5))
    latents = NoiseLatents(7, (4, 2, 2), 3)
    assert images["images"].shape == (5, 3, 4, 4) and images["images"].dtype == "uint8"
    assert images["images"].max() > 200 and images["labels"].dtype == "int64"
    found = latents.__getitems__(range(5))
    assert found["mean"].shape == found["logvar"].shape == (5, 4, 2, 2) and found["mean"].dtype == "float32"
    assert len(latents) == 7 and found["labels"].max() == 2 and len(latents.keys(range(3))) == 3


def test_noise_of_latents_comes_in_their_forms():
    point = NoiseLatents(7, (4, 2, 2), 3, "point").__getitems__(range(5))
    assert list(point) == ["mean", "labels"] and point["mean"].shape == (5, 4, 2, 2)
    codes = NoiseLatents(7, (4, 2, 2), 3, "codes", 9).__getitems__(range(5))
    assert list(codes) == ["codes", "labels"] and codes["codes"].shape == (5, 2, 2)
    assert codes["codes"].dtype == "int32" and codes["codes"].min() >= 0 and codes["codes"].max() <= 8


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("form", ["distribution", "point", "codes"])
def test_a_dit_is_counted_on_latents_in_any_form(form, device):
    settings = DiTDiffusion(normalise="channel", time="uniform", time_mean=0.0, time_std=1.0, label_dropout=0.1)
    with torch.device(device):
        book = torch.zeros(9, 4)
        model = DiT(DiTConfig(channels=4, size=2, classes=3, width=16, depth=1, heads=2, patch=1))
        rows, scaler = NoiseLatents(20, (4, 2, 2), 3, form, 9), LatentScaler([0.0] * 4, [1.0] * 4)
        recipe = DiTRecipe(
            model,
            settings,
            0,
            rows,
            rows,
            scaler,
            None,
            DiTSampling(solver="euler", steps=25, guidance=1.5),
            codebook=book,
        )
        step = Step(recipe, training(), run(), torch.device(device))
    forward, backward = step.operations()
    assert forward > 0 and backward > forward and step.activations() > 0
