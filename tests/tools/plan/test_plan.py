"""The whole plan, on a clone in which nothing was run."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from darkroom.check.check import read_params
from darkroom.errors import DarkroomError
from darkroom.terminal.tables import bytes_of
from darkroom.tools.plan import facts, passes, plan, rehearsal, trainings
from darkroom.tools.plan.history import Run
from darkroom.tools.plan.loading import Loading
from darkroom.tools.plan.numbers import count_of, time_of
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.stale import Dag
from darkroom.tools.plan.table import Whole, as_text
from models.tokenizers.discrete import Patches

KNOWN = [
    *("ingest@first", "ingest@second", "catalog", "train_teacher", "train_tokenizer", "score_tokenizer"),
    *("sample_tokenizer", "encode_latents@first", "encode_latents@second", "train_extractor", "reference_stats"),
    *("score_tokenizer_samples", "train_generator", "sample_generator", "score_generator", "train_clip"),
    *("embed_clip@first", "embed_clip@second", "train_decoder@base", "train_decoder@up", "sample_decoder"),
    *("train_scene_reader", "score_decoder", "train_prior", "sample_text", "score_text", "report"),
]


@pytest.fixture
def stale(quick):
    """Returns a clone whose DVC says which stages are out of date."""
    return lambda *names: quick(names, KNOWN)


def change(folder, *path, value):
    """Change one value in params.yaml."""
    values = read_params(folder / "params.yaml")
    place = values
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))


def test_a_teacher_that_nobody_asks_for_takes_no_time(stale):
    stale("train_teacher")
    stage = json.loads(plan.plan(in_json=True))["stages"][0]
    assert (stage["stage"], stage["work"], stage["parameters"]) == ("train_teacher", 0, None)


def test_a_fresh_clone_is_planned_whole_and_nothing_is_written(stale):
    clone = stale(*KNOWN)
    change(clone, "train_tokenizer", "kl", "perceptual", value={"network": "teacher", "weight": 0.1})
    before = {path: path.stat().st_mtime_ns for path in clone.rglob("*") if path.is_file()}
    found = json.loads(plan.plan(in_json=True))
    assert {path: path.stat().st_mtime_ns for path in clone.rglob("*") if path.is_file()} == before
    stages = {stage["stage"]: stage for stage in found["stages"]}
    assert list(stages) == KNOWN and all(stage["stale"] for stage in stages.values())

    from darkroom.models.generators.dit.network import DiT, DiTConfig

    model = DiT(DiTConfig(channels=4, size=8, classes=10, width=16, depth=1, heads=2, patch=2))
    dit, count = stages["train_generator"], sum(p.numel() for p in model.parameters())
    assert dit["parameters"] == count
    trained = {"gradients": 4 * count, "optimizer": 2 * 4 * count + 4 * len(list(model.parameters()))}
    assert trained.items() <= dit["memory"].items()
    weights = dit["memory"]["weights"]
    assert dit["disk"] == {"outputs": 4 * weights, "state": 3 * (2 * weights + trained["optimizer"])}
    trainings = ("train_teacher", "train_tokenizer", "train_extractor", "train_generator", "train_clip")
    for name in (*trainings, "train_decoder@base", "train_decoder@up", "train_prior"):
        stage = stages[name]
        assert stage["seconds"] > 0 and stage["backward"] > 1.5 * stage["forward"] > 0 and stage["source"] == "measured"
        assert stage["memory"]["activations"] > 0
    assert stages["sample_generator"]["forward"] > 2 * dit["forward"] / 1.01  # two steps, guided, and the decoder
    assert stages["catalog"]["source"] == stages["report"]["source"] == "guess"
    bodies, whole = sum(stage["seconds"] for stage in stages.values()), found["seconds"]
    assert whole["bodies"] == pytest.approx(bodies) and whole["dvc"] > bodies


def test_a_tokenizer_that_generates_is_planned_with_its_images(stale):
    clone = stale("train_tokenizer", "sample_tokenizer", "score_tokenizer_samples")
    change(clone, "train_tokenizer", "kind", value="vq_ar")
    change(clone, "train_tokenizer", "vq_ar", "classes", value=True)
    change(clone, "train_tokenizer", "vq_ar", "depth", value=1)
    change(clone, "train_tokenizer", "vq_ar", "training", value={"images": 64, "warmup": 32})
    stages = {stage["stage"]: stage for stage in json.loads(plan.plan(in_json=True))["stages"]}
    trained, sampled, scored = (stages[name] for name in stages)
    assert trained["backward"] > 1.5 * trained["forward"] > 0 and sampled["parameters"] == trained["parameters"]
    # A code costs a pass of the transformer over one token, and the training's pass is over all of them at once.
    assert 0.2 * trained["forward"] < sampled["forward"] < 2 * trained["forward"] and scored["forward"] > 0


def test_stale_stages_only_unless_asked(stale):
    stale("score_generator", "report")
    Path("logs").mkdir()
    lines = [{"stage": "report", "event": "end", "seconds": 7.5}, {"stage": "report", "event": "start"}]
    Path("logs/runs.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"stage": "rep')
    text = plan.plan()
    assert [line.split()[0] for line in text.splitlines()[2:4]] == ["score_generator", "report"]
    assert "train_generator" not in text and "7.5 s" in text
    named = json.loads(plan.plan(["ingest", "report"], in_json=True))["stages"]
    assert [(stage["stage"], stage["stale"]) for stage in named] == [
        ("ingest@first", False),
        ("ingest@second", False),
        ("report", True),
    ]
    stale()
    assert "every stage is up to date" in plan.plan()
    with pytest.raises(DarkroomError, match="there is no stage `train_dti`"):
        plan.plan(["train_dti"])
    assert plan.choose([], KNOWN, set(), True) == KNOWN
    assert plan.choose(["encode_latents@second"], KNOWN, set(), False) == ["encode_latents@second"]


def test_what_does_not_fit_is_counted_and_not_run(stale, monkeypatch):
    stale("train_generator")
    monkeypatch.setattr(trainings, "_available", lambda device: 1000)
    monkeypatch.setattr(trainings, "_measure", lambda *_: pytest.fail("measured"))
    stage = json.loads(plan.plan(in_json=True))["stages"][0]
    assert stage["source"] == "too large" and stage["forward"] > 0 and stage["memory"]["activations"] > 0
    assert "lower `run.micro_batch`" in stage["notes"][0] and "train_generator" in stage["notes"][0]
    text = plan.plan()
    assert "?" in text and "and more" in text


def test_time_grows_with_the_images_and_with_what_is_done_beside(stale, monkeypatch):
    """Seconds of an update, of a validated image and of a grid are given: the sum by hand."""
    clone = stale("train_generator")
    monkeypatch.setattr(rehearsal.Rehearsal, "update_seconds", lambda self, budget: (2.0, 9.0))
    monkeypatch.setattr(rehearsal.Rehearsal, "validation_seconds", lambda self: 0.5)
    monkeypatch.setattr(rehearsal.Rehearsal, "grid_seconds", lambda self: 7.0)
    monkeypatch.setattr(Loading, "seconds", lambda self, roots: 1000.0)

    def seconds():
        return json.loads(plan.plan(in_json=True))["stages"][0]["seconds"]

    # What is loaded; the first update takes 9 s more; 64 images in updates of 32, validated each 32 on 2 x 12 images.
    once = 1000 + 9
    assert seconds() == pytest.approx(once + 2 * 2.0 + 2 * 24 * 0.5)
    change(clone, "run", "grid_every", value=40)  # and at the last image; of the averaged and of the raw weights
    assert seconds() == pytest.approx(once + 2 * 2.0 + 2 * 24 * 0.5 + 2 * 2 * 7.0)
    change(clone, "train_generator", "training", "images", value=128)
    assert seconds() == pytest.approx(once + 4 * 2.0 + 4 * 24 * 0.5 + 4 * 2 * 7.0)


def test_each_shard_is_padded_to_whole_batches(stale, monkeypatch):
    """Shards of 50: train 72 is 50 + 22, val 12, test 36; with batches of 64 that is one each."""
    stale("encode_latents@first")
    calls = []
    monkeypatch.setattr(
        passes.Passes, "add", lambda self, function, batch, count, images: calls.append((count, images))
    )
    plan.plan()
    assert calls == [(4, 120)]


def test_mirror_images_are_encoded_too_and_what_is_in_place_is_not_copied(stale, monkeypatch):
    stale()
    calls = []
    monkeypatch.setattr(passes.Passes, "add", lambda self, function, batch, count, images: calls.append(count))
    plain = facts.gather(set(KNOWN))
    known = replace(plain, mirrored=frozenset({"first"}), in_place=frozenset({"first"}))
    disk = [passes.plan_encode(each, "first").disk["outputs"] for each in (plain, known)]
    assert calls == [4, 8] and disk[1] == 2 * disk[0]
    assert passes.plan_ingest(known, "first").disk["outputs"] < passes.plan_ingest(plain, "first").disk["outputs"] / 4


def test_codes_are_two_bytes_a_place_and_counted_twice(stale, monkeypatch):
    """Of a discrete tokenizer whose latents are 8 x 8; disk is that of the checkout and of DVC's cache."""
    change(stale(), "encode_latents", "latents", value="codes")
    for room in (passes, trainings):
        monkeypatch.setattr(room, "tokenizer_recipe", lambda known: SimpleNamespace(model=Patches(16)))
    known = facts.gather(set(KNOWN))
    assert passes.plan_encode(known, "first").disk["outputs"] == 2 * 120 * 64 * 2
    recipe = trainings.dit_recipe(known, torch.device("cpu"))
    assert recipe.train.__getitems__([0])["codes"].shape == (1, 8, 8) and recipe.codebook.shape == (7, 3)


def test_numbers_are_told_as_people_say_them():
    assert [bytes_of(n) for n in (12, 1_300, 2.5e6, 1e12)] == ["12 B", "1.3 kB", "2.5 MB", "1 TB"]
    assert [count_of(n) for n in (12, 1_500, 2.5e9)] == ["12", "1.5 k", "2.5 G"]
    assert [time_of(n) for n in (1.25, 59, 80, 11_400, 180_000)] == [
        "1.2 s",
        "59 s",
        "1 min 20 s",
        "3 h 10 min",
        "2 d 2 h",
    ]


def test_the_table_is_aligned_and_ends_with_its_total():
    plans = [
        StagePlan("ingest@first", seconds=10.0),
        StagePlan("train_generator", 1234, 1e6, 2e6, {"weights": 10_000}, {"outputs": 10**6}, 50.0, notes=["a note"]),
    ]
    whole = Whole(bodies=60.0, dvc=100.0, snakemake=80.0, cores=2, between=5.0, load=1.0)
    lines = as_text(plans, whole, {"train_generator": 33.0}, ["a thing"]).splitlines()
    assert " ".join(lines[3].split()) == "train_generator 1,234 1 M + 2 M 10 kB 1 MB 50 s measured 33 s"
    assert lines[5].split()[0] == "total" and lines[5].endswith("1 min 0 s")
    engines = ["`snakemake --cores 2`, side by side: 1 min 20 s", "`dvc repro`, one after another: 1 min 40 s"]
    assert lines[6:] == ["", *engines, "", "Assumed:", "- a thing.", "- a note."]


def test_what_ran_here_decides_and_what_was_measured_stays_beside_it():
    plans = [StagePlan("train_generator", seconds=50.0), StagePlan("sample_generator", seconds=9.0)]
    plan._settle(plans, {"train_generator": Run(40.0, alike=True), "sample_generator": Run(8.0, alike=False)})
    found = [(each.seconds, each.source, each.measured_seconds) for each in plans]
    assert found == [(40.0, "last run", 50.0), (9.0, "measured", None)]


def test_on_a_busy_machine_the_work_counts_and_on_a_quiet_one_the_wall():
    def settled(*walls):
        plans = [StagePlan("train_generator", seconds=50.0, wall=wall, work=10.0) for wall in walls]
        load = plan._settle(plans, {})
        return load, [each.seconds for each in plans]

    assert settled(11.0, 10.0) == (1.05, [pytest.approx(55.0), 50.0])
    assert settled(30.0, 10.0) == (2.0, [50.0, 50.0])
    whole = Whole(60.0, 100.0, 80.0, 2, 5.0, load=2.0)
    assert "took 2.0 times its own work" in " ".join(plan._assumptions(2, whole, []))
    assert "own work" not in " ".join(plan._assumptions(2, replace(whole, load=1.1), []))


def test_stages_of_one_thread_are_measured_side_by_side_and_the_others_alone(monkeypatch):
    """On two cores; a training comes first, for it takes longest."""
    monkeypatch.setattr(plan, "_cores", lambda: 2)
    asked = []

    def measure(names, known):
        asked.append(names)
        return [StagePlan(name) for name in names]

    params = {"run": {"ingest_processes": 2}, "train_generator": {"training": {"threads": 2, "processes": 1}}}
    names = ["ingest@first", "catalog", "train_generator", "train_clip", "score_generator"]
    found = plan._measured(measure, names, None, params)
    assert [each.stage for each in found] == names
    assert asked == [["train_clip", "catalog", "score_generator"], ["ingest@first"], ["train_generator"]]


def test_a_last_run_of_another_model_says_nothing_of_this_one():
    dag = Dag(
        ["train_generator", "sample_generator", "report"],
        {"train_generator", "sample_generator"},
        {"sample_generator": {"train_generator"}},
    )
    last = {name: Run(8.0, alike=True) for name in dag.stages}
    assert plan._comparable(last, dag).keys() == {"train_generator", "report"}


def test_two_processes_measure_what_one_would(clone, monkeypatch):
    """They load what stages load, and their plans come back whole."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    known = facts.gather(set(KNOWN))
    with plan._measuring(2) as measure:
        found = measure(["catalog", "train_generator"], known)
    assert [each.stage for each in found] == ["catalog", "train_generator"]
    assert found[1].parameters > 0 and found[1].seconds > 0 and found[1].wall >= found[1].work > 0
