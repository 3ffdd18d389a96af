"""The stage `train_teacher`: it trains where the tokenizer's loss asks for it, and else needs nothing of the data."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from darkroom.artifacts.manifest import ArtifactError
from darkroom.check.check import read_params, schema
from darkroom.data.catalog_writer import write_selection
from darkroom.errors import DarkroomError
from darkroom.models.evaluators.teacher import Teacher, open_teacher
from darkroom.models.tokenizers.settings import TrainTokenizer
from darkroom.params.section import validate
from darkroom.params.stage import stage_params
from darkroom.stages import train_teacher
from data.making import Noise, make_part
from helpers import DIGITS

ROOT = Path(__file__).parents[2]
TRAINING = {"images": 8, "batch": 8, "warmup": 0, "log_every": 8, "validate_every": 8}


class Labelled(Noise):
    """Noise whose images have so many labels."""

    def __init__(self, labels):
        super().__init__()
        self.labels = labels

    def read(self, entry):
        return replace(super().read(entry), label=str(entry.payload % self.labels))


def make_data(labels):
    """Write twenty images of so many labels, and choose them all."""
    for folder in map(Path, ("data/shards", "data/selection")):
        shutil.rmtree(folder, ignore_errors=True)
    make_part(Path("data/shards"), "first", 0, 20, source=Labelled(labels))
    Path("data/selection").mkdir()
    write_selection(Path("data/selection"), ["first"])


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone with data of three labels, and a function that writes params.yaml and returns what the stage is given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    shutil.copy(ROOT / "dvc.yaml", "dvc.yaml")
    make_data(3)

    def params(kind="kl", network="none", **changes):
        values = read_params(DIGITS)
        values["run"] |= {"device": "cpu", "grid_every": 0}
        values["train_tokenizer"] |= {"kind": kind, **changes}
        if network != "none":
            values["train_tokenizer"][kind]["perceptual"] = {"network": network, "weight": 0.5}
        values["train_teacher"] |= {"model": {"channels": [4], "layers": 1}}
        values["train_teacher"]["training"] |= TRAINING
        Path("params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        return validate(schema("train_teacher"), stage_params("train_teacher"))

    return params


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "`train_tokenizer.kl.perceptual.network` is none"),
        ({"kind": "dvae"}, "the tokenizer `dvae` has no perceptual loss"),
        ({"kind": "vqgan", "network": "vgg16"}, "`train_tokenizer.vqgan.perceptual.network` is vgg16"),
        ({"network": "teacher", "teacher": "data/copy"}, "`train_tokenizer.teacher` is data/copy"),
    ],
)
def test_what_nobody_asks_for_is_not_trained(clone, changes, reason):
    """Not one image is read, so it does not matter what labels they have."""
    params = clone(**changes)
    shutil.rmtree("data/shards")
    train_teacher.run(params)
    manifest = json.loads(Path("models/teacher/manifest.json").read_text())
    assert (manifest["kind"], manifest["trained"], manifest["reason"]) == ("teacher", False, reason)
    assert [path.name for path in Path("models/teacher").iterdir()] == ["manifest.json"]
    assert not list(Path("curves/teacher").rglob("*.tsv"))
    with pytest.raises(ArtifactError, match=r"was not trained.*run `dvc repro train_teacher`"):
        open_teacher(Path("models/teacher"), (3, 16, 16))


def test_what_a_loss_asks_for_is_trained(clone):
    train_teacher.run(clone(network="teacher"))
    manifest = json.loads(Path("models/teacher/manifest.json").read_text())
    assert manifest["trained"] and manifest["images_seen"] == 8
    assert isinstance(open_teacher(Path("models/teacher"), tuple(manifest["image_shape"])), Teacher)


def test_one_class_that_a_loss_should_learn_from_is_told_before_any_work(clone):
    make_data(1)
    with pytest.raises(DarkroomError, match=r"^all images have the label .*which need no labels") as told:
        train_teacher.run(clone(network="teacher"))
    assert "\n" not in str(told.value) and not [*Path(".darkroom").rglob("images-*")]


def test_every_kind_with_a_perceptual_loss_is_asked():
    """A kind that is added is named here and in dvc.yaml."""
    kinds = {
        name
        for name, field in TrainTokenizer.model_fields.items()
        if any("perceptual" in getattr(kind, "model_fields", {}) for kind in getattr(field.annotation, "__args__", ()))
    }
    assert kinds == {"kl", "vqgan"}
    assert all(f"- train_tokenizer.{kind}.perceptual.network" in (ROOT / "dvc.yaml").read_text() for kind in kinds)
