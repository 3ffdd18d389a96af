"""A training rehearsed: what is told is what the loop then takes, by a clock that only the network moves."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from darkroom.tools.plan import timing, trainings
from darkroom.tools.plan.facts import Facts
from darkroom.tools.plan.rehearsal import rehearsal
from darkroom.tools.plan.rows import NoiseImages
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.timing import Stopwatch
from darkroom.training.loop import train
from darkroom.training.recipe import Phase, Recipe
from darkroom.training.trainer import Places
from helpers import run, training

CPU = torch.device("cpu")
STEPS = 30


class Slow(nn.Linear):
    """A linear map that takes 0.1 s an image on its clock, and three times that where gradients follow."""

    def __init__(self):
        super().__init__(12, 12)
        self.clock, self.calls = SimpleNamespace(now=0.0), []

    def forward(self, images):
        self.calls.append(len(images))
        self.clock.now += 0.1 * len(images) * (3 if torch.is_grad_enabled() else 1)
        return super().forward(images)


class Painter(Recipe):
    """A recipe whose every pass goes through one slow network; a grid asks it `STEPS` times."""

    def __init__(self, rows=40, start=0, after=None):
        self.network = Slow()
        self.modules = {"slow": self.network}
        self.phases = (Phase("slow", self.loss, start=start, after=after),)
        self.train, self.val = NoiseImages(rows, (3, 2, 2), 4), NoiseImages(rows // 2, (3, 2, 2), 4)
        self.dtypes = []

    def loss(self, batch):
        return {"loss": self._errors(batch).mean()}

    def validate(self, batch):
        return {"loss": self._errors(batch)}

    def preview(self):
        x = torch.zeros(10, 12)
        for _ in range(STEPS):
            x = self.modules["slow"](x)
        return np.zeros((10, 3, 2, 2), dtype=np.uint8)

    def _errors(self, batch):
        made = self.modules["slow"](batch.data["images"].flatten(1).float() / 255)
        self.dtypes.append(made.dtype)
        return made.float().square().mean(dim=1)


@pytest.fixture
def clocked(monkeypatch):
    """A painter whose network moves the clock that a stopwatch reads."""

    def painter(**changes):
        recipe = Painter(**changes)
        read = lambda: recipe.network.clock.now  # noqa: E731
        monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=read, thread_time=read))
        return recipe

    return painter


def known(**changes):
    values = dict.fromkeys(Facts.__dataclass_fields__, 0) | {"watch": Stopwatch(), **changes}
    return Facts(**values)


CASES = [
    ({}, {}),
    ({"grid_every": 40}, {}),
    ({"micro_batch": 3}, {}),
    ({}, {"validate_every": 64, "images": 128, "select": "best"}),
    ({"grid_every": 16}, {"ema_profiles": [0.1], "schedule": "cosine", "warmup": 16}),
]


@pytest.mark.parametrize(("how", "settings"), CASES)
def test_what_is_told_is_what_the_loop_takes(clocked, tmp_path, how, settings):
    """Within a tenth: the loop draws no grid twice at its end, and validates there once."""
    settings, real = training(**settings), clocked()
    train(real, settings, run(**how), Places(tmp_path / "state", tmp_path / "curves", tmp_path / "logs"))
    taken = real.network.clock.now
    rehearsed, plan = clocked(), StagePlan("slow")
    trainings._measure(plan, rehearsed, settings, known(), run(**how), CPU)
    assert plan.seconds == pytest.approx(taken, rel=0.1)
    assert len(rehearsed.network.calls) < len(real.network.calls) or not how.get("grid_every")


def test_reading_is_added_where_the_training_process_reads(clocked):
    seconds = []
    for workers in (0, 2):
        plan = StagePlan("slow")
        trainings._measure(plan, clocked(), training(), known(read_seconds=1.0), run(workers=workers), CPU)
        seconds.append(plan.seconds)
    assert seconds[0] - seconds[1] == pytest.approx(64)  # images; validations are read by the training process in both


def test_a_process_of_two_takes_half_of_the_batch(clocked):
    recipe = clocked()
    with rehearsal(recipe, training(processes=2), run(), Stopwatch()) as rehearsed:
        rehearsed.update_seconds(0)
    assert set(recipe.network.calls) == {4}


def test_what_follows_a_step_is_part_of_the_update_and_the_first_is_not_measured(clocked):
    """A codebook that moves once an update, by the whole batch; its first update is another."""
    seen = []
    recipe = clocked(after=lambda batch: seen.append(batch.positions.tolist()))
    with rehearsal(recipe, training(batch=8), run(micro_batch=4), Stopwatch()) as rehearsed:
        rehearsed.update_seconds(0)
    assert recipe.network.calls[:2] == [4, 4]
    assert seen[:2] == [list(range(8, 16)), list(range(16, 24))] and len(seen) == len(recipe.network.calls) // 2


def test_a_phase_that_begins_late_takes_its_turn_and_one_that_never_does_not(clocked):
    for start, begins in ((24, 24), (30, 32), (64, 8)):
        with rehearsal(clocked(start=start), training(), run(), Stopwatch()) as rehearsed:
            assert rehearsed.trainer.images == begins


def test_weights_stay_and_the_folder_goes(clocked):
    recipe = clocked()
    before = [p.clone() for p in recipe.network.parameters()]
    with rehearsal(recipe, training(learning_rate=1.0), run(), Stopwatch()) as rehearsed:
        folder = rehearsed.trainer.places.state.parent
        for _ in range(20):
            rehearsed.update_seconds(0)  # more updates than the training has
        assert folder.is_dir()
    assert not folder.exists()
    assert all(
        torch.allclose(old, new, atol=1e-9) for old, new in zip(before, recipe.network.parameters(), strict=True)
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precision_is_that_of_the_section(clocked, precision):
    recipe = clocked()
    with rehearsal(recipe, training(precision=precision), run(), Stopwatch()) as rehearsed:
        rehearsed.update_seconds(0)
    assert set(recipe.dtypes) == {torch.bfloat16 if precision == "bf16" else torch.float32}


def test_a_grid_asks_the_network_twice_and_tells_the_whole(clocked):
    recipe = clocked()
    with rehearsal(recipe, training(), run(), Stopwatch()) as rehearsed:
        recipe.network.calls.clear()
        assert rehearsed.grid_seconds() == pytest.approx(STEPS * 10 * 0.1)
        assert recipe.network.calls == [10, 10]
        assert "forward" not in vars(recipe.network) and recipe.network.training


def test_seconds_are_the_lower_quartile_of_calls_within_the_budget(monkeypatch):
    """Others make calls slower and none faster: of 1, 1, 1, 9 and 9 s the time is 1 s, not the mean."""
    clock, calls = SimpleNamespace(now=0.0), iter([1.0, 9.0, 1.0, 9.0, 1.0])
    read = lambda: clock.now  # noqa: E731
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=read, thread_time=read))

    def work():
        clock.now += next(calls)

    assert Stopwatch().seconds_of(work, CPU, 20.5) == 1.0 and next(calls, None) is None


def test_waiting_is_no_work_and_shows_as_load():
    watch = Stopwatch()
    assert watch.once(lambda: time.sleep(0.05), CPU) < 0.04
    assert watch.wall >= 0.05 > watch.work
