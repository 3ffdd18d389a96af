"""A training rehearsed: what is said is what the loop then takes, by a clock that only the network moves."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from darkroom.tools.plan import meter, rehearsal
from darkroom.tools.plan.meter import Meter
from darkroom.tools.plan.rehearsal import Rehearsal, TooLargeError, memory_of
from darkroom.tools.plan.table import StagePlan
from darkroom.training import after_step
from darkroom.training.loop import train
from darkroom.training.recipe import Phase, Recipe
from darkroom.training.start import OutputPaths
from helpers import run, training

IN, STEPS = 12, 30


class Pictures:
    """Images of noise, uint8 (N, 3, 2, 2)."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def keys(self, rows):
        return [str(row) for row in rows]

    def __getitems__(self, rows, positions=None):
        return {"images": np.random.default_rng(0).integers(0, 256, (len(rows), 3, 2, 2), dtype=np.uint8)}


class Slow(nn.Linear):
    """A linear map that takes 0.1 s an image on its clock, and three times that where gradients follow."""

    def __init__(self):
        super().__init__(IN, IN)
        self.clock, self.calls = SimpleNamespace(now=0.0), []

    def forward(self, images):
        self.calls.append(len(images))
        self.clock.now += 0.1 * len(images) * (3 if torch.is_grad_enabled() else 1)
        return super().forward(images)


class Painter(Recipe):
    """A recipe whose every pass goes through one slow network; a grid calls it `STEPS` times."""

    def __init__(self, rows=40, start=0, after=None):
        self.network = Slow()
        self.modules = {"slow": self.network}
        self.phases = (Phase("slow", self.loss, start=start, after=after),)
        self.train, self.val = Pictures(rows), Pictures(rows // 2)
        self.dtypes = []

    def loss(self, batch):
        return {"loss": self._errors(batch).mean()}

    def validate(self, batch):
        return {"loss": self._errors(batch)}

    def preview(self):
        x = torch.zeros(10, IN)
        for _ in range(STEPS):
            x = self.modules["slow"](x)
        return np.zeros((10, 3, 2, 2), dtype=np.uint8)

    def sample_evolution(self):
        return self.preview()

    def _errors(self, batch):
        made = self.modules["slow"](batch.data["images"].flatten(1).float() / 255)
        self.dtypes.append(made.dtype)
        return made.float().square().mean(dim=1)


@pytest.fixture
def clocked(monkeypatch):
    """A painter whose network moves the clock that a rehearsal reads."""

    def painter(**changes):
        recipe = Painter(**changes)
        for room in (meter, rehearsal):
            monkeypatch.setattr(room, "clock", lambda: recipe.network.clock.now)
        return recipe

    return painter


@pytest.fixture
def rehearsed(tmp_path, monkeypatch):
    """Returns what rehearses a recipe: the rehearsal, and the trainer that it leaves."""
    monkeypatch.setattr(rehearsal, "BUDGET", 0.0)

    def rehearse(recipe, settings=None, how=None, scale=1):
        found = Rehearsal(Meter(), scale, StagePlan("train_tokenizer"))
        with found.meter.watching():
            trainer = found.train(recipe, settings or training(), how or run(), places(tmp_path / "rehearsed"))
        return found, trainer

    return rehearse


def places(folder):
    return OutputPaths(folder / "state", folder / "curves", folder / "logs")


CASES = [
    ({"grid_every": 40}, {}),
    ({"micro_batch": 3}, {}),
    ({}, {"validate_every": 64, "images": 128, "select": "best"}),
    ({"grid_every": 16}, {"schedule": "cosine", "warmup": 16}),
]


@pytest.mark.parametrize(("how", "settings"), CASES)
def test_what_is_said_is_what_the_loop_takes(clocked, rehearsed, tmp_path, monkeypatch, how, settings):
    """Within a tenth: the loop draws no grid twice at its end, and validates there once; sample evolutions too."""
    monkeypatch.setattr(after_step, "FIRST", 8)
    settings, real = training(**settings), clocked()
    train(real, settings, run(**how), places(tmp_path / "real"))
    taken = real.network.clock.now
    recipe = clocked()
    found, trainer = rehearsed(recipe, settings, run(**how))
    assert found.plan.seconds == pytest.approx(taken, rel=0.1)
    assert found.took == pytest.approx(recipe.network.clock.now + found.meter.spared)
    assert trainer.images == settings.images
    left = places(tmp_path / "rehearsed")
    assert any(left.curves.iterdir())


def test_a_small_data_set_stands_for_a_large_one_in_validation(clocked, rehearsed):
    seconds = [rehearsed(clocked(), scale=scale)[0].plan.seconds for scale in (1, 5)]
    assert seconds[1] - seconds[0] == pytest.approx(4 * 2 * 20 * 0.1)  # two validations of 20 images at 0.1 s


def test_images_that_are_made_for_scores_are_as_many_whatever_the_data(clocked, rehearsed):
    def painter(generated):
        recipe = clocked()

        def scores(rank, count, gather):
            recipe.network(torch.zeros(10, IN))
            return {"fd": 1.0}

        recipe.evaluations, recipe.generated = [(32, scores)], [scores] * generated
        return recipe

    for generated, times in ((True, 1), (False, 5)):
        none = rehearsed(clocked(), scale=5)[0].plan.seconds
        assert rehearsed(painter(generated), scale=5)[0].plan.seconds - none == pytest.approx(times * 2 * 10 * 0.1)


def test_a_process_of_two_takes_half_of_the_batch(clocked, rehearsed):
    found, trainer = rehearsed(clocked(), training(processes=2, batch=16))
    assert trainer.settings.batch == 8 and trainer.settings.processes == 1
    # What begins in the second half of a training takes a turn, too.
    assert rehearsal.first_image(Painter(start=40), trainer.settings) == 40
    assert found.plan.memory["exchange"] == found.plan.memory["gradients"]


def test_what_follows_a_step_is_part_of_it_and_the_first_step_is_not_rehearsed(clocked, rehearsed):
    """A codebook that moves once a step, by the whole batch; at its first step it is put on the data."""
    seen = []
    rehearsed(clocked(after=lambda batch: seen.append(batch.positions.tolist())), how=run(micro_batch=4))
    assert seen[:2] == [list(range(16, 24)), list(range(24, 32))]


def test_a_phase_that_begins_late_takes_its_turn_and_one_that_never_does_not():
    for start, begins in ((24, 24), (30, 32), (64, 8)):
        assert rehearsal.first_image(Painter(start=start), training()) == begins


def test_weights_stay(clocked, rehearsed):
    recipe = clocked()
    before = [p.clone() for p in recipe.network.parameters()]
    rehearsed(recipe, training(learning_rate=1.0))
    after = recipe.network.parameters()
    assert all(torch.allclose(old, new, atol=1e-9) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precision_is_that_of_the_section(clocked, rehearsed, precision):
    recipe = clocked()
    rehearsed(recipe, training(precision=precision))
    assert set(recipe.dtypes) == {torch.bfloat16 if precision == "bf16" else torch.float32}


def test_operations_are_those_of_all_images(clocked, rehearsed):
    """y = x Wᵀ: 2 · N · in · out. Backward: the same for W's gradient; the images need none."""
    found, _ = rehearsed(clocked(), training(images=64, batch=8))
    assert found.plan.forward == found.plan.backward == 64 * 2 * IN * IN
    assert found.plan.parameters == IN * IN + IN


def test_memory_of_weights_gradients_optimizer_and_averages():
    weights = 4 * (IN * IN + IN)
    expected = {"weights": weights, "gradients": weights, "optimizer": 2 * weights + 2 * 4, "averages": weights}
    assert memory_of(Painter(), training()) == expected
    more = training(select="best", processes=2)
    assert memory_of(Painter(), more) == expected | {"averages": 2 * weights, "exchange": weights}


class Deep(Painter):
    """The same with eight blocks of four layers whose results the backward pass needs."""

    def __init__(self):
        super().__init__()
        self.blocks = [
            nn.Sequential(*(nn.Sequential(nn.Linear(IN, IN), nn.Tanh()) for _ in range(4))) for _ in range(8)
        ]
        self.modules = {"slow": nn.Sequential(*self.blocks)}


def test_checkpointing_and_smaller_micro_batches_take_less_memory(rehearsed):
    settings = training(batch=512, images=1024)
    live = {
        name: rehearsed(Deep(), settings, run(**how))[0].plan.memory["activations"]
        for name, how in {
            "all": {},
            "micro": {"micro_batch": 128},
            "checkpointed": {"activation_checkpointing": True},
        }.items()
    }
    one = 512 * IN * 4  # bytes of the results of one layer
    assert live["all"] > 8 * 4 * one  # tanh keeps its result, which the next layer needs, too
    whole = Deep()
    whole.whole_batch = True  # the loop does not cut it, so neither does the plan
    assert rehearsed(whole, settings, run(micro_batch=128))[0].plan.memory["activations"] == live["all"]
    assert live["micro"] < live["all"] / 2 and live["checkpointed"] < (8 + 2 * 4 + 4) * one < live["all"]


def test_a_batch_that_is_not_cut_is_not_made_smaller_by_micro_batches(rehearsed, monkeypatch):
    whole = Deep()
    whole.whole_batch = True
    monkeypatch.setattr(rehearsal, "_available", lambda: 1000)
    with pytest.raises(TooLargeError, match="lower its `batch`, or set"):
        rehearsed(whole)


def test_what_does_not_fit_is_refused_before_it_is_run(clocked, rehearsed, monkeypatch):
    recipe = clocked()
    monkeypatch.setattr(rehearsal, "_available", lambda: 1000)
    with pytest.raises(TooLargeError, match=r"needs about .* lower `run.micro_batch`"):
        rehearsed(recipe)
    assert recipe.network.calls == []
    needed = sum(memory_of(recipe, training()).values())
    monkeypatch.setattr(rehearsal, "_available", lambda: needed)
    with pytest.raises(TooLargeError):  # a batch does not fit any more
        rehearsed(recipe, training(batch=4096, images=8192))
    assert set(recipe.network.calls) == set(rehearsal.COUNTED)
