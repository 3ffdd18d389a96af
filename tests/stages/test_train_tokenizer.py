"""The stage `train_tokenizer`, with each kind that is trained, and with one that needs classes."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from darkroom.check.check import read_params
from darkroom.data.catalog import load_selection
from darkroom.data.catalog_writer import write_selection
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.protocol import Codes, load_tokenizer
from darkroom.models.tokenizers.settings import Params
from darkroom.stages import train_tokenizer
from data.making import make_part
from helpers import DIGITS

ROOT = Path(__file__).parents[2]
VALUES = read_params(DIGITS)
TINY = {
    "kl": {"patch": 1, "channels": [8, 8], "norm_groups": 4},
    "dvae": {"layers": 1, "width": 8, "codebook_dim": 4, "codebook_size": 8},
    "vqgan": {"layers": 1, "width": 8, "norm_groups": 4, "codebook_dim": 4, "codebook_size": 8},
    "vq_ar": {
        **{"patch": 2, "dim": 16, "depth": 1, "heads": 1, "head_dim": 16, "codebook_dim": 4, "codebook_size": 8},
        "classes": False,
    },
}
KINDS = [kind for kind in TOKENIZERS if TOKENIZERS.has("recipe", kind)]
TRAINING = {"images": 16, "batch": 8, "warmup": 8, "log_every": 8, "validate_every": 16}


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone as the working folder."""
    enter(tmp_path, monkeypatch)


@pytest.fixture(scope="module", params=KINDS)
def of_kind(request, tmp_path_factory):
    """A kind, and a clone in which it has been trained."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        trained(request.param)
    return request.param, folder


def enter(clone, monkeypatch):
    """Write two parts that are chosen, and one, with a class of its own, that is not; and go there."""
    monkeypatch.chdir(clone)
    monkeypatch.setenv("DVC_ROOT", str(clone))
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, file.name)
    for part, start in (("first", 0), ("second", 20), ("other", 40)):
        make_part(Path("data/shards"), part, start, start + 20, default_label="none")
    folder = Path("data/selection")
    folder.mkdir(parents=True)
    write_selection(folder, ["first", "second"])


def trained(kind, init="data/none", **changes):
    """Train a tiny tokenizer of a kind; return it and its manifest."""
    tokenizer = {**VALUES["train_tokenizer"], "kind": kind}
    tokenizer["training"] = {**tokenizer["training"], "threads": 1, "init": {"folder": init}}
    tokenizer[kind] = {**tokenizer[kind], **TINY[kind], **changes, "training": TRAINING}
    run = {**VALUES["run"], "device": "cpu", "grid_every": 0, "workers": 0}
    train_tokenizer.run(Params.model_validate({"run": run, "train_tokenizer": tokenizer}))
    return opened(Path("models/tokenizer"))


def opened(folder):
    """Return a tokenizer and its manifest."""
    return load_tokenizer(folder)[0], json.loads((folder / "manifest.json").read_text())


def test_each_kind_is_trained_and_opened_again(of_kind, monkeypatch):
    kind, clone = of_kind
    monkeypatch.chdir(clone)
    model, manifest = opened(Path("models/tokenizer"))
    assert manifest["tokenizer_kind"] == kind and manifest["images_seen"] == 16
    assert "classes" not in manifest and (kind != "vq_ar" or model.config.classes == 0)
    assert tuple(manifest["latent_shape"]) == model.latent_shape == (4, 3, 3)
    shards = ImageShards.open_parts(list(load_selection().parts), "val")
    images = torch.from_numpy(shards.__getitems__(range(2)))
    mean, logvar = model.encode(images)
    assert mean.shape == (2, 4, 3, 3) and mean.isfinite().all() and (logvar is None) == (kind != "kl")
    assert model.reconstruct(images).shape == images.shape == model.decode(mean).shape
    curves = {"/".join(path.with_suffix("").parts[-2:]) for path in Path("curves/tokenizer").rglob("*.tsv")}
    assert "val/loss" in curves and ("eval/usage" in curves) == isinstance(model, Codes) == (kind != "kl")
    if isinstance(model, Codes):
        codes = model.encode_codes(images)
        assert codes.shape == (2, 3, 3) and 0 <= codes.min() <= codes.max() < model.codebook_size == 8
        assert torch.equal(model.decode_codes(codes), model.reconstruct(images))


@pytest.mark.usefixtures("clone")
def test_given_weights_are_taken_as_they_are(of_kind):
    kind, other = of_kind
    model, _ = opened(other / "models/tokenizer")
    again, manifest = trained(kind, init=str(other / "models/tokenizer"), frozen=True)
    assert manifest["tokenizer_kind"] == kind and manifest["images_seen"] == 0
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    assert not list(Path("curves/tokenizer").rglob("*.tsv"))


def test_without_a_training_weights_must_be_given():
    told = r"`dvae\.frozen` is true: name weights in `train_tokenizer\.training\.init`"
    with pytest.raises(ValidationError, match=told):
        trained("dvae", frozen=True)


@pytest.mark.usefixtures("clone")
def test_the_classes_of_the_chosen_parts_stand_in_the_manifest():
    """A part that was not chosen has a class of its own, which the tokenizer does not know."""
    model, manifest = trained("vq_ar", classes=True)
    known = set()
    for part in ("first", "second"):
        splits = json.loads(Path(f"data/shards/{part}/manifest.json").read_text())["splits"]
        known |= {label for split in ("train", "val") for label in splits[split]["labels"]}
    assert manifest["classes"] == sorted(known) and model.config.classes == len(known) > 1


@pytest.mark.usefixtures("clone")
def test_images_without_labels_are_refused_with_the_way_out():
    shutil.rmtree("data/shards/second")
    make_part(Path("data/shards"), "second", 20, 40)
    shutil.rmtree("data/selection")
    Path("data/selection").mkdir()
    write_selection(Path("data/selection"), ["first", "second"])
    told = r"`train_tokenizer\.vq_ar` needs labels: set `train_tokenizer\.vq_ar\.classes` to false, add labels"
    with pytest.raises(DarkroomError, match=told):
        trained("vq_ar", classes=True)
