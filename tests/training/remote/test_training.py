"""A training that goes on, on another machine: the same bits as an undisturbed one."""

import fsspec
import pytest

from darkroom.training import checkpoint
from darkroom.training.loop import train
from darkroom.training.remote import open_place
from darkroom.training.start import OutputPaths
from helpers import run, training
from training.test_loop import Toy, curves, weights

KEY = "train_toy-0123456789abcdef"


def places(machine) -> OutputPaths:
    return OutputPaths(machine / "state" / KEY, machine / "curves", machine / "logs")


@pytest.fixture
def store():
    files = fsspec.filesystem("memory").store
    files.clear()
    yield files
    files.clear()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_second_machine_ends_the_training_bit_for_bit(tmp_path, monkeypatch, store, capsys, damaged):
    whole = train(Toy(), training(), run(), places(tmp_path / "whole"))
    first, second = places(tmp_path / "first"), places(tmp_path / "second")

    def die(seen):
        if seen == 48:
            raise RuntimeError("this machine is gone")

    save, place = checkpoint.save, open_place("memory://bucket", KEY, 2)

    def save_and_push(*given, **named):
        folder = save(*given, **named)
        place.push(folder)
        return folder

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(checkpoint, "save", save_and_push)
        train(Toy(die), training(), run(max_lost_seconds=1e-9), first)
    if damaged:
        newest = sorted(name for name in store if name.endswith("modules.safetensors"))[-1]
        data = bytearray(store[newest].getvalue())
        data[-1] ^= 1
        fsspec.filesystem("memory").pipe_file(newest, bytes(data))

    found = open_place("memory://bucket", KEY, 2).fetch(second.state)
    assert found is not None and ("is damaged" in capsys.readouterr().out) == damaged
    recipe = Toy()
    ended = train(recipe, training(), run(), second)
    assert recipe.seen and recipe.seen[0] == int(found.name.removeprefix("images-")) > 0
    assert weights(ended) == weights(whole)
    assert curves(second.curves) == curves(tmp_path / "whole" / "curves")
