"""A bare update, by hand: parameters, operations, bytes."""

import time

import pytest
import torch
from torch import nn

from darkroom.generators.dit import DiT, DiTConfig
from darkroom.generators.normaliser import Normaliser
from darkroom.planning.rows import NoiseImages, NoiseLatents
from darkroom.planning.step import Step, batch_of
from darkroom.planning.timing import seconds_of
from darkroom.recipes.dit import DiTRecipe
from darkroom.schemas.train_dit import Diffusion
from darkroom.training.recipe import Phase, Recipe
from helpers import run, training

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


def test_what_follows_a_step_is_part_of_the_update():
    """A codebook that moves once an update, by the whole batch; its first update is another, and is not measured."""
    recipe, seen = Linear(), []
    recipe.phases = (Phase("linear", recipe.loss, after=lambda batch: seen.append(batch.positions.tolist())),)
    Step(recipe, training(batch=8), run(micro_batch=4), CPU).seconds(0, time.perf_counter)
    assert recipe.passes[:2] == [4, 4] and seen[0] == list(range(8, 16)) and len(seen) == len(recipe.passes) // 2


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
    batch = batch_of(step.recipe.train, 8, CPU)
    step.update(batch)
    held = [value for state in step.optimizers["linear"].state.values() for value in state.values()]
    assert sum(value.nbytes for value in held) == expected["optimizer"]
    assert sum(value.nbytes for average in step.averages for value in average) == expected["averages"]
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


def test_an_update_takes_the_micro_batches_and_leaves_the_weights():
    recipe = Linear()
    step = Step(recipe, training(batch=8), run(micro_batch=3), CPU)
    before = [p.clone() for p in recipe.modules["linear"].parameters()]
    step.update(batch_of(recipe.train, 8, CPU))
    assert recipe.passes == [3, 3, 2]
    assert all(torch.equal(old, new) for old, new in zip(before, recipe.modules["linear"].parameters(), strict=True))
    assert step.optimizers["linear"].state


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precision_is_that_of_the_section(precision):
    recipe, found = Linear(), []
    step = Step(recipe, training(precision=precision), run(), CPU)
    recipe.modules["linear"].register_forward_hook(lambda module, inputs, output: found.append(output.dtype))
    step.update(batch_of(recipe.train, 8, CPU))
    assert found == [torch.bfloat16 if precision == "bf16" else torch.float32]


def test_a_grid_that_takes_too_long_is_given_up():
    recipe = Linear()
    step = Step(recipe, training(), run(), CPU)
    recipe.preview = lambda: recipe.modules["linear"](torch.zeros(1, IN))
    assert step.preview_seconds(60, time.perf_counter) > 0
    assert step.preview_seconds(-1, time.perf_counter) is None
    assert recipe.modules["linear"].training
    recipe.modules["linear"](torch.zeros(1, IN))  # the hook is gone


def test_seconds_are_of_one_call_and_the_first_is_not_counted():
    calls = []

    def work():
        calls.append(1)
        time.sleep(0.01 if len(calls) > 1 else 0.3)

    assert 0.01 <= seconds_of(work, CPU, 0.05, time.perf_counter) < 0.2 and len(calls) > 2


def test_waiting_is_no_work():
    assert seconds_of(lambda: time.sleep(0.05), CPU, 0, time.thread_time) < 0.04


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
    settings = Diffusion(normalise="channel", time="uniform", time_mean=0.0, time_std=1.0, label_dropout=0.1)
    with torch.device(device):
        book = torch.zeros(9, 4)
        model = DiT(DiTConfig(channels=4, size=2, classes=3, width=16, depth=1, heads=2, patch=1))
        rows, normaliser = NoiseLatents(20, (4, 2, 2), 3, form, 9), Normaliser([0.0] * 4, [1.0] * 4)
        recipe = DiTRecipe(model, settings, 0, rows, rows, normaliser, None, codebook=book)
        step = Step(recipe, training(), run(), torch.device(device))
    forward, backward = step.operations()
    assert forward > 0 and backward > forward and step.activations() > 0
