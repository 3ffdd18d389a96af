"""The stage `sample_tokenizer`: images where the kind makes any; what is counted in them."""

import json
from pathlib import Path

import pytest
import torch

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.check.check import read_params
from darkroom.data.reader import ImageShards
from darkroom.metrics.labels import class_scores
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.tokenizers.settings import SampleParams
from darkroom.stages import sample_tokenizer
from helpers import DIGITS
from models.tokenizers.making_vq_ar import SHAPE, network

ROOT = Path(__file__).parents[2]
VALUES = read_params(DIGITS)
TINY = {"threads": 1, "images": 5, "batch": 4, "shard_size": 4}
CHOICE = {"min_p": 0.125, "temperature": 1.25, "guidance": 1.75}


def write_model(classes: int) -> None:
    folder = Path("models/tokenizer")
    folder.mkdir(parents=True)
    named = {"classes": ["one", "three", "two"][:classes]} if classes else {}
    network(classes=classes).save_pretrained(folder)
    files = file_hashes(folder)
    write_manifest(folder, "tokenizer", tokenizer_kind="vq_ar", image_shape=list(SHAPE), files=files, **named)


def run_stage() -> dict:
    values = {key: VALUES[key] for key in ("run", "sample_tokenizer")}
    values["sample_tokenizer"] = {**values["sample_tokenizer"], **TINY, **CHOICE}
    values["run"] = {**values["run"], "device": "cpu"}
    sample_tokenizer.run(SampleParams.model_validate(values))
    return json.loads(Path("samples/tokenizer/manifest.json").read_text())


@pytest.mark.parametrize("classes", [0, 3])
def test_a_tokenizer_that_generates_leaves_images_like_the_dit(tmp_path, monkeypatch, classes):
    monkeypatch.chdir(tmp_path)
    write_model(classes)
    manifest = run_stage()
    images = ImageShards.open_folder(Path("samples/tokenizer"), "samples")
    names = ["one", "three", "two"]
    assert len(images) == manifest["images"] == 5 and images.image_shape == SHAPE
    assert list(images.labels) == ([names[number % 3] for number in range(5)] if classes else [None] * 5)
    assert {key: manifest["sampler"][key] for key in CHOICE} == CHOICE and "threads" not in manifest["sampler"]
    assert Path("samples/tokenizer/grid.png").is_file()


def test_sure_images_and_the_rarest_class_are_counted():
    """A head that copies features into logits: probabilities by hand."""
    classifier = Classifier(in_channels=3, channels=[4, 4], features=3, classes=3, dropout=0.0).eval()
    wanted = torch.tensor([[0.95, 0.03, 0.02], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.92, 0.05, 0.03]])
    classifier.logits = lambda features: wanted.log()
    assert class_scores(classifier, torch.zeros(4, 3)) == {"confident": 0.5, "rarest_class": 0.0}
