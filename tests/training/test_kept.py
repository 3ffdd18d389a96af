"""Weights that are kept on the way: at their image, raw and averaged, also after a kill; a damaged set is named."""

import os
import signal

import pytest
from safetensors.torch import load_file, save_file
from torch import equal

from darkroom.errors import DarkroomError
from darkroom.training.loop import train
from darkroom.training.stage import Job, save_weights
from helpers import run, training
from tiny import Line, places


def saved(root, folder, **changes):
    """Train in `root`, write what the training leaves to `folder`, and return the files by name."""
    state = train(Line(), training(**changes), run(), places(root))
    job = Job(lambda place: _save(state.modules["line"], place), {}, raw=True, kept_weights=True)
    save_weights(state, places(root).state, folder, job)
    return {str(path.relative_to(folder)): load_file(path) for path in sorted(folder.rglob("*.safetensors"))}


def _save(module, place):
    place.mkdir(parents=True, exist_ok=True)
    save_file(module.state_dict(), place / "line.safetensors")


def test_kept_weights_are_those_of_a_training_that_ends_there(tmp_path):
    """20 images a set and 8 a batch: kept at 24, 40 and 64, the last of which is the end."""
    whole = saved(tmp_path / "whole", tmp_path / "out", save_every=20)
    assert sorted(whole) == [
        "checkpoints/images-000000000024/line.safetensors",
        "checkpoints/images-000000000024/raw/line.safetensors",
        "checkpoints/images-000000000040/line.safetensors",
        "checkpoints/images-000000000040/raw/line.safetensors",
        "line.safetensors",
        "raw/line.safetensors",
    ]
    for images in (24, 40):
        short = saved(tmp_path / str(images), tmp_path / "s", images=images)
        for name, tensors in short.items():
            kept = whole[f"checkpoints/images-{images:012d}/{name}"]
            assert all(equal(kept[key], value) for key, value in tensors.items())
            assert not all(equal(whole[name][key], value) for key, value in tensors.items())


def test_a_killed_training_keeps_the_same(tmp_path):
    undisturbed = saved(tmp_path / "a", tmp_path / "out-a", save_every=16)
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == 5 else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(Line(hook), training(save_every=16), run(), places(tmp_path / "b"))
    resumed = saved(tmp_path / "b", tmp_path / "out-b", save_every=16)
    assert undisturbed.keys() == resumed.keys() and len(resumed) == 8
    assert all(equal(resumed[name][key], value) for name in resumed for key, value in undisturbed[name].items())


def test_a_damaged_set_is_named(tmp_path):
    train(Line(), training(save_every=32), run(), places(tmp_path))
    (file,) = (places(tmp_path).state / "kept" / "images-000000000032" / "raw").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(DarkroomError, match=r"images-000000000032 are missing or damaged: remove .* and train again"):
        saved(tmp_path, tmp_path / "out", save_every=32)
