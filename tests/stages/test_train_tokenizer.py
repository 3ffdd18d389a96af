"""The stage `train_tokenizer` with a kind that needs classes."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from darkroom.data.selection import write_selection
from darkroom.schemas.train_tokenizer import Params
from darkroom.stages import train_tokenizer
from darkroom.tokenizers.load import load_tokenizer
from data.making import make_part

ROOT = Path(__file__).parents[2]
VALUES = yaml.safe_load((ROOT / "params.yaml").read_text())
TINY = {"dim": 16, "depth": 1, "heads": 1, "head_dim": 16, "codebook_dim": 4, "codebook_size": 8}


@pytest.mark.parametrize("classes", [False, True])
def test_the_classes_of_the_chosen_parts_stand_in_the_manifest(tmp_path, monkeypatch, classes):
    """A part that was not chosen has a class of its own, which the tokenizer does not know."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, name)
    for part, start in (("first", 0), ("second", 20), ("other", 40)):
        make_part(Path("data/shards"), part, start, start + 20, default_label="none")
    folder = Path("data/selection")
    folder.mkdir(parents=True)
    write_selection(folder, ["first", "second"])
    tokenizer = {**VALUES["train_tokenizer"], "kind": "vq_ar"}
    size = json.loads(Path("data/shards/first/manifest.json").read_text())["image"]["size"]
    training = {"images": 16, "batch": 8, "warmup": 8, "log_every": 8, "validate_every": 16}
    tokenizer["common"] = {**tokenizer["common"], "threads": 1}
    tokenizer["vq_ar"] = {**tokenizer["vq_ar"], **TINY, "patch": size // 2, "classes": classes, "training": training}
    run = {**VALUES["run"], "device": "cpu", "grid_every": 0, "workers": 0}
    train_tokenizer.run(Params.model_validate({"run": run, "train_tokenizer": tokenizer}))
    manifest = json.loads(Path("models/tokenizer/manifest.json").read_text())
    model = load_tokenizer(Path("models/tokenizer"))[0]
    assert manifest["tokenizer_kind"] == "vq_ar" and manifest["latent_shape"] == [4, 2, 2]
    if not classes:
        assert "classes" not in manifest and model.config.classes == 0
        return
    known = set()
    for part in ("first", "second"):
        splits = json.loads(Path(f"data/shards/{part}/manifest.json").read_text())["splits"]
        known |= {label for split in ("train", "val") for label in splits[split]["labels"]}
    assert manifest["classes"] == sorted(known) and model.config.classes == len(known) > 1
