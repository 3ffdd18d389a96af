"""What a training is told by: validation that is the same each time, the best of it, scores, pictures."""

import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image

from darkroom.errors import DarkroomError
from darkroom.training.evaluation import validate
from darkroom.training.loop import train
from darkroom.training.start import open_training
from helpers import run, training
from training.toy import Numbers, Toy, curves, places, weights


class Banded(Toy):
    """Validation also tells the loss of the rows above a threshold."""

    def validate(self, batch):
        losses = super().validate(batch)["loss"]
        return {"loss": losses, "loss_high": losses[batch.data["x"][:, 0] > 1.55], "loss_none": losses[:0]}


def test_a_band_is_the_mean_of_its_images_and_an_empty_one_is_not_told(tmp_path):
    trainer = open_training(Banded(), training(), run(), places(tmp_path))
    with trainer.averaged(), torch.no_grad():
        rows = torch.tensor([[row / 10, 1.0] for row in range(20)])
        module = trainer.modules["first"].eval()
        each = module(rows).square()[:, 0].double()
    found = validate(trainer)
    assert found == {
        "val/loss": pytest.approx(each.mean().item()),
        "val/loss_high": pytest.approx(each[16:].mean().item()),
    }


class Worsening(Toy):
    """The validation loss falls, and rises again: a bias that sinks passes a point where it is lowest."""

    def __init__(self, hook=None):
        super().__init__(hook)
        self.point = self.modules["second"].bias.detach().clone() - 0.1

    def validate(self, batch):
        return {"loss": distance(self).expand(len(batch))}


def distance(recipe):
    return (recipe.modules["second"].bias.detach() - recipe.point).square()


def test_best_is_decided_on_validation_and_leaves_the_training_when_asked(tmp_path):
    settings = {"images": 160, "validate_every": 8, "learning_rate": 0.02, "ema_decay": 0.0}
    last = train(Worsening(), training(**settings), run(), places(tmp_path / "last"))
    losses = {record["images"]: record["val/loss"] for record in last.records}
    assert last.best.images == min(losses, key=losses.get) < 160 and last.best.loss == min(losses.values())

    best = train(Worsening(), training(**settings, select="best"), run(), places(tmp_path / "best"))
    assert best.best == last.best and best.records == last.records
    with last.averaged():
        assert float(distance(last.recipe)) == pytest.approx(losses[160])
    with best.averaged():
        assert float(distance(best.recipe)) == pytest.approx(min(losses.values())) != losses[160]


def test_the_best_survives_a_stop(tmp_path):
    """A stop after the best: its averages are in the checkpoint."""
    settings = training(images=160, validate_every=8, learning_rate=0.02, ema_decay=0.5, select="best")
    whole = train(Worsening(), settings, run(), places(tmp_path / "whole"))
    assert 8 < whole.best.images < 144
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == 152 else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(Worsening(hook), settings, run(), places(tmp_path))
    resumed = train(Worsening(), settings, run(), places(tmp_path))
    assert resumed.best == whole.best and weights(resumed) == weights(whole)
    for name, tensors in whole.best_state.items():
        assert all(torch.equal(value, resumed.best_state[name][key]) for key, value in tensors.items())


def test_best_without_validation_images_is_refused_before_training(tmp_path):
    recipe = Toy()
    recipe.val = type("Empty", (Numbers,), {"__len__": lambda self: 0})()
    with pytest.raises(DarkroomError, match="`select: best` needs validation images"):
        train(recipe, training(select="best"), run(), places(tmp_path))
    train(recipe, training(), run(), places(tmp_path))


class Scored(Toy):
    """Scores two weights of the averages, each in its own time, and counts where it looks at the second."""

    def __init__(self):
        super().__init__()
        self.evaluations = [(24, lambda *given: self.scored("second.weight", *given)), (16, self.counted)]

    def scored(self, name, rank, count, gather):
        assert (rank, count) == (0, 1) and not self.modules["first"].training
        module, _, key = name.partition(".")
        return {name: float(gather(self.modules[module].get_parameter(key).detach()).sum())}

    def counted(self, *given):
        self.histograms = {"codes": np.array([3, 4])}
        return self.scored("first.3.bias", *given)


def test_scores_come_when_due_of_the_averages_and_change_nothing(tmp_path):
    """An evaluation that counts nothing repeats no histogram."""
    plain = train(Toy(), training(), run(), places(tmp_path / "plain"))
    scored = train(Scored(), training(), run(), places(tmp_path))
    for name, due in (("second.weight", [24, 48, 64]), ("first.3.bias", [16, 32, 48, 64])):
        told = {record["images"]: record[f"eval/{name}"] for record in scored.records if f"eval/{name}" in record}
        assert list(told) == due
        module, _, key = name.partition(".")
        assert told[64] == pytest.approx(float(scored.ema.state[module][key].sum()))
        assert f"plots/metrics/eval/{name}.tsv" in curves(tmp_path / "curves")
    assert weights(plain) == weights(scored)
    written = sorted(path.name for path in (tmp_path / "logs" / "histograms").iterdir())
    assert written == [f"{images:09d}-codes.tsv" for images in (16, 32, 48, 64)]


def test_grids_show_the_averages_and_the_raw_weights(tmp_path):
    class Shades(Toy):
        def preview(self):
            shade = int(self.modules["second"].bias.detach().abs() * 1e4) % 256
            return np.full((3, 1, 4, 4), shade, dtype=np.uint8)

    trainer = train(Shades(), training(), run(grid_every=32), places(tmp_path))
    written = sorted(path.name for path in (tmp_path / "logs" / "grids").iterdir())
    assert written == [f"{images:09d}-{weights}.png" for images in (32, 64) for weights in ("ema", "raw")]
    for name, bias in (("ema", trainer.ema.state["second"]["bias"]), ("raw", trainer.modules["second"].bias.detach())):
        with Image.open(tmp_path / "logs" / "grids" / f"000000064-{name}.png") as grid:
            assert int(bias.abs() * 1e4) % 256 in np.asarray(grid)
