"""The stages that score generated images look for copies of training images, and compare with held-out ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from darkroom.artifacts.manifest import manifest_hash, open_artifact, write_manifest
from darkroom.data.reader import ImageShards
from darkroom.metrics import reference as held_out
from darkroom.models.generators import sample_settings
from darkroom.params.section import validate
from darkroom.stages import score_generator
from helpers import run
from stages.tiny_generator import INCEPTION, enter_copy, sample, train, write_clone

NEAREST = Path("samples/nearest/generator")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A clone with a generator that was trained on 64 images and samples of it."""
    root = write_clone(tmp_path_factory.mktemp("clone"))
    with pytest.MonkeyPatch.context() as patch:
        enter_copy(root, root.parent / "trained", patch)
        train("class", {"grid_every": 0}, evaluate={"every": 0, "extractor": "data/none", "reference": "data/none"})
        sample("class", images=14)
    return root.parent / "trained"


@pytest.fixture
def clone(whole, tmp_path, monkeypatch):
    enter_copy(whole, tmp_path / "clone", monkeypatch)


def score(**changes: Any) -> tuple[dict[str, float], dict[str, Any]]:
    given = {"run": run().model_dump(), "reference_stats": {"inception": INCEPTION}}
    section = {"batch": 4, "blocks": 2, **changes}
    score_generator.run(validate(sample_settings.ScoreParams, {**given, "score_generator": section}))
    return tuple(json.loads(Path(f"{place}/generator.json").read_text()) for place in ("metrics", "cards"))


def test_pairs_and_numbers_are_written_with_those_of_held_out_images(clone):
    scores, card = score(copies={"images": 10})
    train_images = ImageShards.open_parts(["one"], "train")
    assert scores["times_seen"] == 64 / len(train_images)
    assert card["protocol"]["copies"]["n"] == 10 and card["protocol"]["copies"]["n_train"] == len(train_images)
    floor = card["baselines"]["copies"]
    assert {"copies_pixels", "copies_moved", "copies_features", "ct_pixels", "fd_gap"} <= set(floor) & set(scores)
    manifest = open_artifact(NEAREST, "nearest")
    assert manifest["samples"] == manifest_hash(Path("samples/generator")) and manifest["floor"] == floor
    head, *lines = [line.split("\t") for line in (NEAREST / "distances.tsv").read_text().splitlines()]
    assert [line[0] for line in lines].count("generated") == 10
    assert (
        [line[0] for line in lines].count("test") == manifest["held_out"]["images"] == 10
    )  # as many, of their classes
    assert {line[head.index("pixels_nearest")] for line in lines} <= set(train_images.keys)
    with Image.open(NEAREST / "moved.png") as picture:
        assert picture.size == (8 * (96 + 2) + 2, 4 * (96 + 2) + 2)  # of 8 pixels, each drawn at 96


def test_images_made_of_held_out_ones_have_no_gap(clone):
    """As those that a U-Net enlarges, which has no condition: each is near to an image of the split."""
    samples = Path("samples/generator")
    sealed = json.loads((samples / "manifest.json").read_text())
    facts = {name: value for name, value in sealed.items() if name not in ("kind", "format", "seal")}
    write_manifest(samples, "samples", **facts, condition="none", split="test")
    scores, _ = score()
    assert "ct_pixels" in scores and "fd_gap" not in scores


def test_copies_are_not_looked_for_where_none_are_wanted(clone):
    scores, card = score(copies={"images": 0})
    assert not any(name.startswith(("copies", "ct_", "fd_gap", "times")) for name in scores)
    assert "copies" not in card["protocol"] and open_artifact(NEAREST, "nearest")["images"] == 0


def test_held_out_images_are_a_reference_where_they_are_enough(clone, monkeypatch):
    assert not any("held_out" in name for name in score()[0])
    monkeypatch.setattr(held_out, "ENOUGH", 2)
    scores, card = score()
    assert {f"{name}_held_out" for name in ("fd", "kid")} | {"fd_held_out_debiased"} <= set(scores)
    assert scores["fd_held_out"] != scores["fd"] and card["baselines"]["train"]["in_domain"]["n"] == 14
    assert card["formulas"]["fd_held_out"] == "as fd, the reference of the held-out split"


def test_real_images_stand_beside_the_generated_ones(clone):
    """Also where no copies are looked for, but then without neighbours."""
    score(copies={"images": 14})
    manifest = open_artifact(NEAREST, "nearest")
    assert manifest["columns"] == ["noise"] and manifest["neighbours"] == 2  # rows of ten, as all are of one class
    with Image.open(NEAREST / "neighbours.png") as picture:
        assert picture.size == (10 * 98 + 2, 6 * 98 + 2)
    real = (NEAREST / "real.png").read_bytes()
    score(copies={"images": 0})
    manifest = open_artifact(NEAREST, "nearest")
    assert (NEAREST / "real.png").read_bytes() == real and manifest["columns"] == ["noise"]
    assert set(manifest["files"]) == {"real.png"}
