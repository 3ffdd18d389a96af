"""Weights to begin with, and checkpoints elsewhere, as the loop calls them."""

import time

import fsspec
import pytest
import torch
from safetensors.torch import save_file

from darkroom.errors import DarkroomError
from darkroom.training.loop import train
from darkroom.training.start import open_training
from helpers import run, training
from training.toy import Toy, curves, places, weights


def test_a_training_and_its_average_begin_with_the_weights_given_and_a_resumed_one_does_not(tmp_path, capsys):
    donor = train(Toy(), training(seed=3), run(), places(tmp_path / "donor"))
    for name, module in donor.modules.items():
        save_file(module.state_dict(), tmp_path / f"{name}.safetensors")
    settings = training(init={"folder": str(tmp_path), "url": None, "sha256": None, "skip": []})
    fresh = open_training(Toy(), settings, run(), places(tmp_path / "fresh"))
    for name, module in fresh.modules.items():
        for key, value in module.state_dict().items():
            assert torch.equal(value, donor.modules[name].state_dict()[key])
            assert torch.equal(value, fresh.ema.state[name][key])
    train(Toy(), settings, run(), places(tmp_path / "tuned"))
    capsys.readouterr()
    train(Toy(), settings, run(), places(tmp_path / "tuned"))
    said = capsys.readouterr().out
    assert "begins with" not in said and "resumes" in said


def test_another_machine_continues_from_the_place_where_checkpoints_go(tmp_path):
    store = fsspec.filesystem("memory").store
    store.clear()
    whole = train(Toy(), training(), run(), places(tmp_path / "whole"))

    def die(seen):
        if seen == 48:
            deadline = time.monotonic() + 60
            while not any(path.endswith("manifest.json") for path in tuple(store)):  # the last file of a copy
                assert time.monotonic() < deadline, "no checkpoint was copied"
                time.sleep(0.01)
            raise RuntimeError("the machine is gone")

    with pytest.raises(RuntimeError, match="the machine is gone"):
        train(
            Toy(die), training(), run(max_lost_seconds=1e-9, checkpoints_to="memory://bucket"), places(tmp_path / "one")
        )
    recipe = Toy()
    other = train(recipe, training(), run(checkpoints_from="memory://bucket"), places(tmp_path / "other"))
    assert 0 < recipe.seen[0] <= 40, "as far as the copies had come"
    assert weights(other) == weights(whole)
    assert curves(tmp_path / "other/curves") == curves(tmp_path / "whole/curves")


def test_a_place_that_is_not_there_stops_before_training(tmp_path):
    recipe = Toy()
    with pytest.raises(DarkroomError, match="mount it"):
        train(recipe, training(), run(checkpoints_from="/nowhere/at-all"), places(tmp_path))
    assert recipe.seen == []
