"""The DAG in miniature: how many images there are, and what the scratch folder holds."""

import json
from pathlib import Path

import pytest
import yaml

from darkroom.check.check import schema
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.parts import Part
from darkroom.params.section import validate
from darkroom.params.stage import items, read_yaml, stage_params
from darkroom.tools.plan.miniature import count_images, scratch, small
from data.making_tars import picture, tar

EVERYTHING = {*STAGES, "ingest@first", "ingest@second"}
PARTS = {"first": (0, 120), "second": (120, 120)}


def other(clone, part, **chosen):
    values = read_yaml(clone / "params.yaml")
    values["parts"] = {
        **values["parts"],
        part: {"path": "data/none", "start": 0, "stop": None, "embeddings": "data/none", **chosen},
    }
    (clone / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))


def shards_of(clone, part, count):
    folder = clone / "data/shards" / part
    folder.mkdir(parents=True)
    splits = {split: {"images": count} for split in ("train", "val", "test")}
    (folder / "manifest.json").write_text(json.dumps({"splits": splits}))


def test_a_fresh_clone_is_known_from_params_and_source(clone):
    assert count_images(EVERYTHING) == PARTS


def test_parts_that_are_up_to_date_are_believed_and_others_not(clone):
    for part in ("first", "second"):
        shards_of(clone, part, 30)
    assert count_images({"train_generator"}) == {"first": (0, 90), "second": (120, 90)}
    assert count_images({"ingest@second"}) == {"first": (0, 90), "second": (120, 120)}


def test_a_part_outside_its_source_is_refused(clone):
    path = clone / "params.yaml"
    path.write_text(path.read_text().replace("stop: 240", "stop: 9999"))
    with pytest.raises(DarkroomError, match="part `second` requests images 120 to 9999"):
        count_images(EVERYTHING)


def test_a_part_of_which_nobody_knows_how_many_images_it_has_must_be_ingested(clone):
    (clone / "tars").mkdir()
    tar(clone / "tars" / "a.tar", {f"{number}.jpg": picture(number) for number in range(9)})
    other(clone, "third", source="webdataset", path="tars", settings={"label": None})
    with pytest.raises(
        DarkroomError, match=r"part `third`: the number of images of webdataset is unknown.*ingest@third"
    ):
        count_images(EVERYTHING | {"ingest@third"})
    shards_of(clone, "third", 3)
    assert count_images(EVERYTHING)["third"] == (0, 9)


def test_a_part_that_is_here_needs_no_source(clone):
    other(clone, "third", source="folder", path="not/here", settings={})
    shards_of(clone, "third", 3)
    assert count_images(EVERYTHING)["third"] == (0, 9)
    with pytest.raises(DarkroomError, match="folder"):
        count_images(EVERYTHING | {"ingest@third"})


def test_images_become_fewer_and_trainings_stay(clone):
    def section(stage, item=None):
        return validate(schema(stage), stage_params(stage, item))

    part = small(section("ingest", "second"), PARTS, 7).parts["second"]
    assert (part.start, part.stop, part.every, part.images) == (120, 240, 7, 18)
    hub = section("ingest", "second").model_copy(update={"parts": {"second": Part(source="hub", every=5, start=120)}})
    assert small(hub, {"second": (120, 50)}, 7).parts["second"].images == 8
    assert small(section("catalog"), PARTS, 7).catalog.max_quarantined == 1
    named = section("ingest", "second")
    named = named.model_copy(update={"ingest": named.ingest.model_copy(update={"group": "name"})})
    assert (small(named, PARTS, 7).ingest.group, small(named, PARTS, 1).ingest.group) == ("auto", "name")
    sampled = section("sample_generator").sample_generator
    for images, fewer in ((1000, 143), (100, 40), (30, 30)):  # never too few for a jackknife
        many = sampled.model_copy(update={"common": sampled.common.model_copy(update={"images": images})})
        assert small(many, PARTS, 7).common.images == fewer
    trained = section("train_generator")
    fewer = small(trained, PARTS, 7)
    assert fewer.train_generator.training == trained.train_generator.training
    assert fewer.train_generator.evaluate == trained.train_generator.evaluate
    assert small(trained, PARTS, 1) is trained


def test_every_stage_is_given_fewer_images(clone):
    params, dvc = read_yaml(Path("params.yaml")), read_yaml(Path("dvc.yaml"))
    for stage in STAGES:
        for item in items(params, dvc, stage):
            whole = validate(schema(stage), stage_params(stage, item))
            fewer = small(whole, PARTS, 7)
            assert type(fewer) is type(whole) and (stage != "ingest" or fewer != whole)


def test_the_scratch_folder_shows_the_clone_without_outputs_and_goes(clone):
    (clone / "data/own").mkdir()
    shards_of(clone, "first", 3)
    shards_of(clone, "second", 3)
    (clone / ".darkroom/state").mkdir(parents=True)
    with scratch({"first"}) as folder:
        assert (folder / "data/own").is_symlink() and (folder / "params.yaml").samefile("params.yaml")
        assert (folder / "data/shards/first/manifest.json").is_file()
        assert not (folder / "data/shards/second").exists() and not (folder / ".darkroom/state").exists()
        (folder / "data/shards/second").mkdir()
        (folder / "logs/here").touch()
    assert not folder.exists() and (Path("data/shards/second") / "manifest.json").is_file()
