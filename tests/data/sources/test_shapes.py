"""The source `shapes`, from its settings to stored images."""

import pickle
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import yaml

from darkroom.check.check import read_params
from darkroom.data.images import to_array
from darkroom.data.reader import ImageShards
from darkroom.data.scenes.captions import caption, label
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import KINDS, scene
from darkroom.data.sources import open_source, slice_of
from darkroom.data.splits import SPLITS
from darkroom.params.ingest import Params
from darkroom.params.parts import Part
from darkroom.params.parts import Shapes as Settings
from darkroom.stages import ingest
from helpers import DIGITS

VALUES = read_params(DIGITS)


def shapes(**changes):
    settings = Settings(**{"seed": 7, "size": 32, "transparent": False, "kinds": list(KINDS), **changes})
    return open_source(Part(source="shapes", path="data/none", stop=9), settings)


def test_a_sample_is_a_scene_with_its_caption_and_class() -> None:
    source = shapes()
    entries = list(source.entries(40, 60))
    assert [entry.key for entry in entries[:2]] == ["shapes-7-000000040", "shapes-7-000000041"]
    for number, entry in zip(range(40, 60), entries, strict=True):
        raw, expected = source.read(entry), scene(7, number)
        assert raw.image.tobytes() == render(expected, 32).tobytes() and raw.image.mode == "RGB"
        assert (raw.label, raw.caption) == (label(expected), caption(expected))
        assert raw.identity is None


def test_it_follows_its_settings_and_a_copy_gives_the_same() -> None:
    source = shapes(size=48, transparent=True, kinds=["count"])
    entry = next(source.entries(5, 6))
    raw = pickle.loads(pickle.dumps(source)).read(entry)
    assert (raw.image.size, raw.image.mode) == ((48, 48), "RGBA")
    assert raw.image.tobytes() == source.read(entry).image.tobytes()
    assert raw.caption == caption(scene(7, 5, ["count"])) and raw.caption.split()[0] in ("two", "three")


def test_there_are_as_many_as_are_asked_for_and_listing_costs_nothing() -> None:
    source = shapes()
    assert slice_of(source, "part", 10**6, 10**12) == (10**6, 10**12)
    first, *_ = islice(source.entries(10**12, 10**15), 3)
    assert first.key == "shapes-7-1000000000000"


def test_scenes_become_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = {key: VALUES[key] for key in ("run", "shapes", "ingest")}
    values["ingest"] = {**values["ingest"], "image_size": 64}
    part = {"source": "shapes", "path": "data/none", "start": 100, "stop": 140, "settings": {"seed": 5}}
    ingest.run(Params.model_validate({**values, "parts": {"scenes": part}}), "scenes")
    stored = {}
    for split in SPLITS:
        shards = ImageShards.open_parts(["scenes"], split)
        for row, key in enumerate(shards.keys):
            stored[key] = shards[row], shards.labels[row], shards.captions[row]
    assert sorted(stored) == [f"shapes-5-{number:09d}" for number in range(100, 140)]
    for key, (pixels, name, text) in stored.items():
        expected = scene(5, int(key.split("-")[2]))
        assert (pixels == to_array(render(expected, 64))).all()
        assert (name, text) == (label(expected), caption(expected))
    manifest = yaml.safe_load((tmp_path / "data/shards/scenes/manifest.json").read_text())
    metadata = {"name": "shapes", "start": 100, "stop": 140, "seed": 5, "size": 64, "transparent": False}
    assert manifest["source"] == {**metadata, "kinds": list(KINDS)}
    assert not manifest["mirror"] and np.sum([each["images"] for each in manifest["splits"].values()]) == 40


def test_equal_captions_lie_in_one_split_in_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = {key: VALUES[key] for key in ("run", "shapes", "ingest")}
    values["ingest"] = {**values["ingest"], "group": "caption", "image_size": 16}
    values["shapes"] = {**values["shapes"], "kinds": ["single"], "size": 16}
    parts = {
        name: {"source": "shapes", "path": "data/none", "start": start, "stop": start + 400, "embeddings": "data/none"}
        for name, start in (("one", 0), ("two", 400))
    }
    for name in parts:
        ingest.run(Params.model_validate({**values, "parts": parts}), name)
    splits = {split: ImageShards.open_parts(["one", "two"], split) for split in SPLITS}
    captions = {split: set(shards.captions) for split, shards in splits.items()}
    assert sum(map(len, captions.values())) == len(set.union(*captions.values())) > 200
    assert len(splits["test"]) > 40 and len(captions["test"]) < len(splits["test"])
    for shards in splits.values():
        assert shards.some("group", range(len(shards))) == shards.captions


def test_a_transparent_scene_has_no_background_to_name() -> None:
    with pytest.raises(ValueError, match="transparent leaves out the background"):
        shapes(kinds=["single"], transparent=True)
