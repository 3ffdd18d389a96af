"""Precision, activation checkpointing, compilation and layout: what changes bits, and what must not."""

import os
import signal

import pytest
import torch
from torch import nn

from darkroom.errors import DarkroomError
from darkroom.training.loop import remaining_batches, seeded, train
from darkroom.training.precision import set_memory_format
from darkroom.training.recipe import Phase, Recipe
from darkroom.training.start import open_training
from helpers import run, training
from training.toy import Numbers, Toy, places, weights


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_and_resumes_bit_for_bit(tmp_path, precision):
    settings = training(precision=precision)
    whole = train(Toy(), settings, run(), places(tmp_path / "whole"))
    with pytest.raises(SystemExit):
        hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == 24 else None  # noqa: E731
        train(Toy(hook), settings, run(), places(tmp_path))
    resumed = train(Toy(), settings, run(), places(tmp_path))
    assert weights(resumed) == weights(whole) and resumed.records == whole.records
    assert weights(whole) != weights(train(Toy(), training(), run(), places(tmp_path / "fp32")))


def test_the_scaler_is_in_the_checkpoint(tmp_path):
    settings = training(precision="fp16")
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == 24 else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(Toy(hook), settings, run(), places(tmp_path))
    trainer = open_training(Toy(), settings, run(), places(tmp_path))
    fresh = open_training(Toy(), settings, run(), places(tmp_path / "fresh"))
    for name, scaler in trainer.scalers.items():  # either the scale was lowered or good updates were counted
        assert scaler.state_dict() != fresh.scalers[name].state_dict()


def test_an_overflow_in_fp16_lowers_the_scale_and_is_no_fault(tmp_path):
    recipe = Toy()
    trainer = open_training(recipe, training(precision="fp16", images=8 * 20), run(), places(tmp_path))
    limit = 2.0**8
    scaler = trainer.scalers["second"]
    recipe.modules["second"].weight.register_hook(
        lambda gradient: gradient * (float("inf") if scaler.get_scale() > limit else 1.0)
    )
    before = trainer.modules["second"].weight.detach().clone()
    batches = remaining_batches(trainer)
    while scaler.get_scale() > limit:
        assert torch.equal(trainer.modules["second"].weight, before)
        trainer.step(next(batches))
    trainer.step(next(batches))
    assert not torch.equal(trainer.modules["second"].weight, before)


def test_a_scale_that_cannot_go_lower_is_a_fault(tmp_path):
    recipe = Toy()
    recipe.modules["second"].weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(DarkroomError, match="the gradient of second is not finite"):
        train(recipe, training(precision="fp16", images=8 * 40), run(), places(tmp_path))


def test_activation_checkpointing_changes_no_bit(tmp_path):
    """Dropout included: it is drawn again as it was."""
    whole = train(Toy(), training(), run(), places(tmp_path / "whole"))
    recipe = Toy()
    recipe.blocks = [recipe.modules["first"]]
    passes = []
    recipe.modules["first"][1].register_forward_hook(lambda *_: passes.append(1))
    again = train(recipe, training(), run(activation_checkpointing=True), places(tmp_path))
    assert weights(again) == weights(whole)
    assert len(passes) > 2 * 8, "nothing was computed again"


def test_a_model_without_blocks_says_so(tmp_path):
    with pytest.raises(DarkroomError, match="no blocks to checkpoint"):
        train(Toy(), training(), run(activation_checkpointing=True), places(tmp_path))


class Pictures(Recipe):
    """A convolution on rows of numbers made into pictures."""

    def __init__(self):
        with seeded(3):
            self.modules = {
                "net": nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 1, 3, padding=1))
            }
        self.phases = (Phase("net", self.loss),)
        self.train, self.val = Numbers(), Numbers()

    def loss(self, batch):
        return {"loss": self.validate(batch)["loss"].mean()}

    def validate(self, batch):
        images = batch.data["x"][:, :, None, None].expand(-1, -1, 4, 4)
        return {"loss": (self.modules["net"](images) - 1).square().mean(dim=(1, 2, 3))}


def require_equal_training(plain, other, recipe, settings, folder):
    """Require that a training in `folder` gives the numbers and names of `plain`, and that it resumes."""
    mine, theirs = plain.modules["net"].state_dict(), other.modules["net"].state_dict()
    assert mine.keys() == theirs.keys()
    for name in mine:  # another order of float32 sums, over 8 updates
        assert torch.allclose(mine[name], theirs[name], atol=1e-4)
    assert weights(open_training(recipe, settings, run(), places(folder))) == weights(other)


def test_another_layout_trains_to_the_same_numbers_and_names(tmp_path):
    settings = training(channels_last=True)
    plain = train(Pictures(), training(), run(), places(tmp_path / "plain"))
    other = train(Pictures(), settings, run(), places(tmp_path / "other"))
    require_equal_training(plain, other, Pictures(), settings, tmp_path / "other")


class Dropping(Pictures):
    """The same with dropout, which must draw the same numbers whether compiled or not."""

    def __init__(self):
        super().__init__()
        self.modules["net"].insert(2, nn.Dropout(0.5))


@pytest.mark.slow
def test_compilation_trains_to_the_same_numbers_and_is_cached_and_dropout_draws_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    found = []
    for name in ("first", "second"):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        found.append(train(Dropping(), training(compile=True), run(), places(tmp_path / name)))
        compiled = torch._dynamo.utils.counters["inductor"]
        assert bool(compiled["fxgraph_cache_hit"]) == (name == "second") != bool(compiled["fxgraph_cache_miss"])
    assert any((tmp_path / "compiled").rglob("*")) and weights(found[0]) == weights(found[1])
    plain = train(Dropping(), training(), run(), places(tmp_path / "plain"))
    require_equal_training(plain, found[0], Dropping(), training(compile=True), tmp_path / "first")


def test_channels_last_is_the_layout(tmp_path):
    net = Pictures().modules["net"]
    set_memory_format(net, training(channels_last=True))
    assert net[0].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_is_of_the_passes_that_train_alone(tmp_path, allowed):
    seen = {"one": set(), "validate": set()}

    class Watching(Toy):
        def one(self, batch):
            seen["one"].add((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))
            return super().one(batch)

        def validate(self, batch):
            seen["validate"].add((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))
            return super().validate(batch)

    train(Watching(), training(tf32=allowed), run(), places(tmp_path))
    assert seen == {"one": {(allowed, allowed)}, "validate": {(False, False)}}
