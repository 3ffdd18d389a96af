"""What is known of the data before there are any, and after."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from darkroom.check.check import read_params
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.tools.plan.facts import expected_splits, gather
from data.making_tars import picture, tar

EVERYTHING = {*STAGES, "ingest@first", "ingest@second"}


@given(st.integers(1, 10**9), st.integers(1, 100), st.integers(0, 100), st.integers(0, 100))
def test_splits_hold_all_images(images, train, val, test):
    total = train + val + test
    found = expected_splits(images, {"train": train / total, "val": val / total, "test": test / total})
    assert sum(found.values()) == images and min(found.values()) >= 0
    assert abs(found["train"] - images * train / total) <= 0.5


def test_a_fresh_clone_is_known_from_params_and_source(clone):
    facts = gather(EVERYTHING)
    assert facts.image_shape == (3, 16, 16) and facts.classes == 10
    assert facts.images == {part: {"train": 72, "val": 12, "test": 36} for part in ("first", "second")}
    assert facts.count("train") == 144
    assert facts.image_bytes > 50 and facts.prepare_seconds > 0 and facts.read_seconds > 0
    assert any("240 images" in sentence for sentence in facts.assumed)
    assert any("10 classes" in sentence for sentence in facts.assumed)


def test_artifacts_that_are_up_to_date_are_believed_and_others_not(clone):
    for part, count in (("first", 70), ("second", 75)):
        folder = clone / "data/shards" / part
        folder.mkdir(parents=True)
        splits = {split: {"images": count if split == "train" else 10} for split in ("train", "val", "test")}
        (folder / "manifest.json").write_text(json.dumps({"splits": splits}))
    (clone / "data/catalog").mkdir()
    (clone / "data/catalog/manifest.json").write_text(json.dumps({"classes": ["a", "b", "c"]}))
    facts = gather({"train_generator"})
    assert facts.classes == 3 and facts.count("train") == 145 and facts.count("val") == 20 and facts.assumed == ()
    half = gather({"ingest@second", "catalog"})
    assert half.classes == 10 and half.count("train") == 70 + 72 and len(half.assumed) == 2


def test_a_part_outside_its_source_is_refused(clone):
    path = clone / "params.yaml"
    path.write_text(path.read_text().replace("stop: 240", "stop: 9999"))
    with pytest.raises(DarkroomError, match="part `second` asks for images 120 to 9999"):
        gather(EVERYTHING)


def other(clone, part, **chosen):
    values = read_params(clone / "params.yaml")
    values["parts"] = {
        **values["parts"],
        part: {"path": "data/none", "start": 0, "stop": None, "embeddings": "data/none", **chosen},
    }
    (clone / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))


def shards_of(clone, part, count):
    folder = clone / "data/shards" / part
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(
        json.dumps({"splits": {s: {"images": count} for s in ("train", "val", "test")}})
    )


def test_parts_in_place_and_mirrored_are_planned_as_what_they_are(clone):
    (clone / "tars").mkdir()
    tar(clone / "tars" / "a.tar", {f"{number}.jpg": picture(number) for number in range(9)})
    other(clone, "third", source="webdataset", path="tars", settings={"mirror": True, "label": None})
    with pytest.raises(DarkroomError, match=r"part `third`: how many images webdataset has.*ingest@third"):
        gather(EVERYTHING | {"ingest@third"})
    shards_of(clone, "third", 3)
    facts = gather(EVERYTHING)
    assert facts.images["third"] == {"train": 3, "val": 3, "test": 3}
    assert facts.mirrored == facts.in_place == {"third"}


def test_a_part_that_is_here_needs_no_source(clone):
    other(clone, "third", source="folder", path="not/here", settings={})
    shards_of(clone, "third", 3)
    assert gather(EVERYTHING).images["third"]["train"] == 3
    with pytest.raises(DarkroomError, match="folder"):
        gather(EVERYTHING | {"ingest@third"})
    values = read_params(clone / "params.yaml")
    values["parts"] = {"third": values["parts"]["third"]}
    (clone / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    with pytest.raises(DarkroomError, match=r"no source can be read to measure an image: .*folder"):
        gather(set())
