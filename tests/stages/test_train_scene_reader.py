"""The stage `train_scene_reader`: it trains where a score asks for it, and else needs nothing."""

import json
from pathlib import Path

import pytest

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.scenes.attributes import ATTRIBUTES
from darkroom.errors import DarkroomError
from darkroom.models.evaluators.scene_reader import SceneReader, open_scene_reader
from darkroom.models.evaluators.settings import SceneReaderParams
from darkroom.params.section import validate
from darkroom.stages import train_scene_reader
from helpers import run, training

OUT = Path("models/scene_reader")


def params(attributes="scenes", size=16, channels="RGB", levels=1):
    return validate(
        SceneReaderParams,
        {
            "run": run().model_dump(),
            "ingest": {"image_size": size, "channels": channels},
            "score_decoder": {"attributes": attributes},
            "train_scene_reader": {
                "kinds": ["position", "relation"],
                "held_out": 20,
                "model": {"channels": [8] * levels, "layers": 1},
                "augment": {"blur": 0.5, "noise": 0.1, "colour": 0.1},
                "training": training(validate_every=64).model_dump(),
            },
        },
    )


@pytest.fixture
def clone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    for name in ("dvc.yaml", "params.yaml"):
        Path(name).write_text(
            "stages: {train_scene_reader: {cmd: x, deps: []}}\n" if name == "dvc.yaml" else "run: {}\n"
        )


def manifest():
    return json.loads((OUT / "manifest.json").read_text())


def test_what_no_score_asks_for_is_not_trained(clone):
    """Also where it could not be: of grey images, or of small ones."""
    train_scene_reader.run(params("none", size=4, channels="L"))
    assert (manifest()["trained"], manifest()["reason"]) == (False, "`score_decoder.attributes` is none")
    assert [path.name for path in OUT.iterdir()] == ["manifest.json"]
    assert not list(Path("curves/scene_reader").rglob("*.tsv"))
    with pytest.raises(ArtifactError, match="was not trained"):
        open_scene_reader(OUT, (3, 16, 16))


def test_only_the_first_of_several_processes_writes_that_nothing_is_trained(clone, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    train_scene_reader.run(params("none"))
    assert not OUT.exists()
    monkeypatch.setenv("RANK", "0")
    train_scene_reader.run(params("none"))
    assert OUT.is_dir()


@pytest.mark.parametrize("levels", [1, 2], ids=["fits", "enlarged"])  # two levels need a multiple of 32 pixels
def test_it_is_trained_without_any_data_and_says_what_it_reads_right(clone, levels):
    train_scene_reader.run(params(levels=levels))
    found = manifest()
    assert found["trained"] and found["images_seen"] == 64 and found["kinds"] == ["position", "relation"]
    assert set(found["accuracy"]) == set(ATTRIBUTES)
    assert all(0 <= share <= 1 for share in found["accuracy"].values()) and found["held_out"] == 20
    assert isinstance(open_scene_reader(OUT, (3, 16, 16)), SceneReader)
    assert list(Path("curves/scene_reader").rglob("*.tsv"))


def test_images_without_colours_are_refused():
    with pytest.raises(DarkroomError, match=r"`ingest\.channels` is L.*`score_decoder\.attributes` to none"):
        params(channels="L")
