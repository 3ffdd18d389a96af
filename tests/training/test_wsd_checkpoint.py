"""A longer training goes on from where a shorter one's decay began, bit for bit as from nothing."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from darkroom.training import after_step, wsd_checkpoint
from darkroom.training.loop import train
from darkroom.training.state import STABLE, identity, lengthless_key, open_state, read_entry
from helpers import run, training
from training.toy import Toy, curves, places, weights


def settings(images=160, **changes):
    """A wsd training of updates of 8 images, a fifth of them decay."""
    return training(images=images, **{"schedule": "wsd", "validate_every": 8, "select": "best", **changes})


def lay(folder, name="train_toy-key"):
    """Say in a training's state where its work of any length lies, as `open_state` does; return its places."""
    (folder / "state").mkdir(parents=True, exist_ok=True)
    common = folder.parent / "stable" / name
    (folder / "state" / STABLE).write_text(json.dumps({"folder": str(common)}))
    return places(folder)


class Drawn(Toy):
    """It has a sample evolution, whose shade is by the weights."""

    def sample_evolution(self):
        shade = int(self.modules["second"].bias.detach().abs() * 1e6) % 256
        return np.full((2, 3, 4, 4), shade, np.uint8)


@pytest.fixture(scope="module", autouse=True)
def early():
    """A sample evolution begins at image 8."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(after_step, "FIRST", 8)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    train(Drawn(), settings(80), run(), lay(folder / "short"))
    return folder


@pytest.fixture
def short(trained, tmp_path):
    """The training of 80 images, whose decay began after 64."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("changes", [{}, {"decay_fraction": 0.5}])
def test_it_is_the_same_bit_for_bit_as_from_nothing(tmp_path, capsys, changes):
    """Also its sample evolution, and the row of it that is drawn where the decay of the shorter one begins."""
    whole = train(Drawn(), settings(**changes), run(), places(tmp_path / "whole"))
    capsys.readouterr()
    recipe = Drawn()
    longer = train(recipe, settings(**changes), run(), lay(tmp_path / "longer"))
    assert recipe.seen[0] == 64 and "from before its decay: at image 64" in capsys.readouterr().out
    assert weights(longer) == weights(whole) and longer.metadata() == whole.metadata()
    assert curves(tmp_path / "longer/curves") == curves(tmp_path / "whole/curves")
    assert longer.images == whole.images
    evolution = json.loads((tmp_path / "longer/curves/sample_evolution.json").read_text())
    assert evolution["images"] == [8, 16, 32, 64, 128, 160]


@pytest.mark.usefixtures("short")
def test_a_shorter_one_another_schedule_and_other_code_begin_from_nothing(tmp_path, monkeypatch):
    for name, changes in {
        "shorter": {"images": 64},
        "cosine": {"schedule": "cosine"},
        "kept": {"save_every": 32},
    }.items():
        recipe = Drawn()
        train(recipe, settings(**{"images": 160, **changes}), run(), lay(tmp_path / name))
        assert recipe.seen[0] == 0, name
    monkeypatch.setattr("darkroom.training.start.read_entry", lambda state, name: {"module": {"f": "1"}})
    recipe = Drawn()
    train(recipe, settings(), run(), lay(tmp_path / "code"))
    assert recipe.seen[0] == 0
    recipe = Drawn()
    recipe.knows_length = True
    train(recipe, settings(), run(), lay(tmp_path / "knows"))
    assert recipe.seen[0] == 0


@pytest.mark.usefixtures("short")
def test_its_own_checkpoint_goes_before_and_a_damaged_one_is_passed_over(tmp_path):
    folder = tmp_path / "stable/train_toy-key/images-000000000064"
    recipe = Drawn()
    train(recipe, settings(80), run(), lay(tmp_path / "short"))
    assert recipe.seen == []
    file = folder / "ema.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    recipe = Drawn()
    train(recipe, settings(), run(), lay(tmp_path / "longer"))
    assert recipe.seen[0] == 0


@pytest.mark.usefixtures("short")
def test_one_work_of_a_stage_is_kept(tmp_path):
    train(Drawn(), settings(72), run(), lay(tmp_path / "item", "train_toy-up-key"))
    train(Drawn(), settings(72, seed=1), run(), lay(tmp_path / "other", "train_toy-other"))
    assert sorted(path.name for path in (tmp_path / "stable").iterdir()) == ["train_toy-other", "train_toy-up-key"]


def test_a_full_disk_stops_no_training(tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as during:
        during.setattr(wsd_checkpoint.checkpoint, "save", full)
        with pytest.raises(Exception, match=r"space|full"):
            train(Drawn(), settings(80), run(), lay(tmp_path))  # its own last checkpoint does
    assert "cannot write the checkpoint for longer trainings" in capsys.readouterr().out


def test_the_work_of_any_length_leaves_out_what_says_the_length(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    stage = {"cmd": "x", "params": ["train_generator"], "deps": [], "outs": ["out"]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train_generator": stage}}))

    def key(**changes):
        values = {"training": {"images": 64, "batch": 8}, "evaluate": {"images": 4}}
        values["training"] |= changes.pop("training", {})
        (tmp_path / "params.yaml").write_text(yaml.safe_dump({"train_generator": {**values, **changes}}))
        return lengthless_key(identity("train_generator"))

    first = key()
    assert first == key(training={"images": 128, "decay_fraction": 0.1, "final_rate": 0.1})
    assert first != key(training={"batch": 16}) and first != key(evaluate={"images": 5})
    with open_state("train_generator") as folder:
        said = Path(read_entry(folder, STABLE)["folder"])
    assert said.parent.name == "stable" and said.name.startswith("train_generator-")
