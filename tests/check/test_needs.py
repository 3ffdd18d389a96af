"""What stages need of each split is known before they run: from params.yaml, and from what `catalog` has counted."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from darkroom import runner
from darkroom.artifacts.manifest import write_manifest
from darkroom.check.check import check, validated
from darkroom.check.needs import require
from darkroom.cli import main
from darkroom.errors import DarkroomError
from helpers import DIGITS
from stages.test_every_source import run as run_stage

ROOT = Path(__file__).parents[2]
IMAGES = {"train": 4, "val": 4, "test": 2}  # enough for the preset `digits`
CAPTIONED = "`sample_text.split` needs 2 images of the split test with a caption, which has 1"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with params.yaml, dvc.yaml and the code that dvc.yaml names."""
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, tmp_path)
    for name in ("src", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "none").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the values of params.yaml, some of them changed."""
    values = yaml.safe_load(DIGITS.read_text())
    for key, value in changes.items():
        *path, last = key.split(".")
        place = values
        for name in path:
            place = place.setdefault(name, {}) if name not in place or place[name] is not None else {}
        place[last] = value
    return values


@pytest.mark.parametrize(
    ("changes", "images", "captions", "sentence"),
    [
        (
            {},
            {"test": 1},
            {},
            "`reference_stats.held_out` needs 2 images of the split test, which has 1 (data",
        ),
        ({}, {"train": 3}, {}, "`reference_stats.split` needs 4 images of the split train, which has 3"),
        ({"score_tokenizer.split": "val"}, {"val": 1}, {}, "`score_tokenizer.split` needs 2 images of the split val"),
        ({}, {"val": 0}, {}, None),
        ({"train_clip.training.select": "best"}, {"val": 0}, {}, "`train_clip.training.select` needs 1 image"),
        ({"train_decoder.evaluate.every": 640}, {"val": 3}, {}, "`train_decoder.evaluate.every` needs 4 images"),
        ({"train_decoder.evaluate.every": 640}, {"val": 4}, {}, None),
        ({"sample_decoder.split": "val"}, {"val": 1}, {}, "`sample_decoder.split` needs 2 images of the split val"),
        ({}, {}, {"test": 1}, CAPTIONED),
        ({}, {}, dict.fromkeys(IMAGES, 0), None),  # without captions there is no prior, and no such images
        ({"train_clip.source": "none"}, {}, {"test": 1}, None),
    ],
)
def test_a_split_with_too_few_images_is_named_with_its_key(changes, images, captions, sentence) -> None:
    if changes.get("train_decoder.evaluate.every"):
        changes = {**changes, "train_decoder.evaluate.extractor": "models/extractor"}
    counts = {**IMAGES, **images}
    args = validated(changed(changes)), counts, {**counts, **captions}, "data/catalog"
    if sentence is None:
        require(*args)
    else:
        with pytest.raises(DarkroomError) as error:
            require(*args)
        assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"parts.first.stop": 3, "parts.second.stop": 903},
            "which will have about 1: add images, or raise `ingest.",
        ),
        (
            {"ingest.splits": {"train": 0.9, "val": 0.1, "test": 0}},
            "`reference_stats.held_out` needs images of the split test, but `ingest.splits.test` is 0: set it abov",
        ),
        ({"sample_text.images": 1}, "`sample_text.images` is 1, but scores need at least 2 images"),
        ({"training.shuffle": "groups"}, "so each image is its own group. Set `ingest.group` to auto, or `"),
    ],
)
def test_what_params_say_is_known_before_any_work(clone: Path, changes, sentence) -> None:
    with pytest.raises(DarkroomError) as error:
        check(changed(changes))
    assert sentence in str(error.value)


def test_counts_stop_all_but_what_counts_again(clone: Path, monkeypatch, capsys) -> None:
    counts = {"train": 900, "val": 50, "test": 1}
    (clone / "data/catalog").mkdir()
    write_manifest(clone / "data/catalog", "catalog", images=counts, captions=counts)
    assert main(["check"]) == 1
    assert "the split test, which has 1 (data/catalog)" in capsys.readouterr().err
    monkeypatch.setattr(runner, "_own_checkout", lambda: None)
    monkeypatch.setattr(runner, "stage_params", lambda *_: pytest.fail("it was begun"))
    with pytest.raises(DarkroomError, match="the split test, which has 1"):
        runner.run_stage("train_extractor", None)
    for stage, item in (("ingest", "first"), ("catalog", None)):
        with pytest.raises(pytest.fail.Exception, match="it was begun"):
            runner.run_stage(stage, item)


def test_catalog_refuses_before_any_training(clone: Path, monkeypatch) -> None:
    part = {"source": "digits", "path": "data/none", "stop": 20, "embeddings": "data/none"}
    values = changed({"parts": {"first": part}, "train_tokenizer.parts": None})
    values["ingest"]["split_seed"] = 5
    (clone / "params.yaml").write_text(yaml.safe_dump(values))
    run_stage("ingest", "first")
    monkeypatch.setattr(runner, "_own_checkout", lambda: None)
    (clone / "dvc.lock").write_text("stages: {}")
    with pytest.raises(DarkroomError, match=r"of the split test, which has 0 \(data/catalog\)"):
        runner.run_stage("catalog", None)


@pytest.mark.parametrize(
    ("kinds", "known", "remedy"),
    [
        (["count"], ["position"], "of the kind count: add it to `train_scene_reader.kinds`"),
        (["single"], ["position"], "of the kind single: set `score_decoder.attributes` to none"),
    ],
)
def test_scenes_that_the_reader_does_not_know_are_refused(kinds, known, remedy) -> None:
    changes = {
        "parts.first.source": "shapes",
        "parts.second.source": "shapes",
        "parts.second.stop": 1000,
        "shapes.kinds": kinds,
        "train_scene_reader.kinds": known,
        "score_decoder.attributes": "scenes",
    }
    with pytest.raises(DarkroomError, match=remedy):
        check(changed(changes))
