"""The whole plan, on a clone in which nothing was run."""

import json
import shutil
import time
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from darkroom.check.check import read_params
from darkroom.dag.history import Run
from darkroom.errors import DarkroomError
from darkroom.tools.plan import plan, rehearsal
from darkroom.tools.plan import stored as kept
from darkroom.tools.plan.forks import forks
from darkroom.tools.plan.miniature import Miniature, count_images, scratch
from darkroom.tools.plan.plan import Dag
from darkroom.tools.plan.table import StagePlan, Whole, as_text, grown

KNOWN = [
    *("ingest@first", "ingest@second", "catalog", "train_teacher", "train_tokenizer", "score_tokenizer"),
    *("sample_tokenizer", "encode_latents@first", "encode_latents@second", "train_extractor", "reference_stats"),
    *("score_tokenizer_samples", "train_generator", "train_classifier", "train_distilled", "sample_generator"),
    "score_generator",
    *("train_clip", "embed_clip@first", "embed_clip@second", "train_decoder@base", "train_decoder@up"),
    *("sample_decoder", "train_scene_reader", "score_decoder", "train_prior", "sample_text", "score_text", "report"),
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


def planned(*names, **how):
    """Return the plans of a run of `darkroom plan` by their stages, and all that it says."""
    found = json.loads(plan.plan(names, in_json=True, **how))
    return {stage["stage"]: stage for stage in found["stages"]}, found


@pytest.fixture
def unmeasured(monkeypatch):
    """A second for each stage, and nothing is run."""
    monkeypatch.setattr(
        plan, "in_miniature", lambda submit, names, *_: {name: StagePlan(name, seconds=1) for name in names}
    )


def test_a_fresh_clone_is_planned_whole_and_nothing_is_written(stale):
    clone = stale(*KNOWN)
    change(clone, "train_tokenizer", "kl", "perceptual", value={"network": "teacher", "weight": 0.1})
    before = {path: path.stat().st_mtime_ns for path in clone.rglob("*") if path.is_file()}
    stages, found = planned()
    (clone / "logs/plans.json").unlink(missing_ok=True)  # on an idle machine, for the next plan
    assert {path: path.stat().st_mtime_ns for path in clone.rglob("*") if path.is_file()} == before
    assert list(stages) == KNOWN and all(stage["stale"] for stage in stages.values())
    skipped = {name for name, stage in stages.items() if stage["source"] == "skipped"}
    assert skipped == {
        "sample_tokenizer",
        "score_tokenizer_samples",
        "train_classifier",
        "train_distilled",
        "train_scene_reader",
    }
    assert {stage["source"] for stage in stages.values()} == {"measured", "skipped"}, found["assumed"]

    from darkroom.models.generators.dit.config import DiTConfig
    from darkroom.models.generators.dit.network import DiT

    model = DiT(DiTConfig(channels=4, size=8, classes=10, width=16, depth=1, heads=2, patch=2))
    dit, count = stages["train_generator"], sum(p.numel() for p in model.parameters())
    assert dit["parameters"] == count
    trained = {"gradients": 4 * count, "optimizer": 2 * 4 * count + 4 * len(list(model.parameters()))}
    assert trained.items() <= dit["memory"].items()
    assert dit["disk"]["outputs"] > 2 * 2 * 4 * count and dit["disk"]["state"] > 3 * 4 * 4 * count
    trainings = ("train_teacher", "train_tokenizer", "train_extractor", "train_generator", "train_clip")
    for name in (*trainings, "train_decoder@base", "train_decoder@up", "train_prior"):
        stage = stages[name]
        assert stage["seconds"] > 0 and stage["backward"] > 1.5 * stage["forward"] > 0, name
        assert stage["memory"]["activations"] > 0
    assert stages["catalog"]["parameters"] is stages["train_scene_reader"]["parameters"] is None
    reference, scored = stages["reference_stats"], stages["score_generator"]
    assert (
        reference["parameters"] == stages["train_extractor"]["parameters"]
    )  # its head says which classes it recognises
    assert scored["forward"] > 0
    bodies, whole = sum(stage["seconds"] for stage in stages.values()), found["seconds"]
    assert whole["bodies"] == pytest.approx(bodies) and whole["dvc"] > bodies


@pytest.mark.slow
def test_a_tokenizer_that_generates_is_planned_with_its_images_and_codes(stale):
    clone = stale()
    change(clone, "train_tokenizer", "kind", value="vq_ar")
    change(clone, "encode_latents", "latents", value="codes")
    stages, found = planned("sample_tokenizer", "score_tokenizer_samples", "train_generator")
    assert all(stage["source"] == "measured" for stage in stages.values()), found["assumed"]
    assert stages["sample_tokenizer"]["forward"] > 0 and stages["score_tokenizer_samples"]["forward"] > 0


@pytest.mark.slow
def test_without_clip_nothing_below_it_has_networks(stale):
    clone = stale()
    change(clone, "train_clip", "source", value="none")
    idle = ("train_clip", "embed_clip", "train_decoder@base", "train_prior", "sample_text", "score_text")
    stages, found = planned(*idle)
    assert all((stage["parameters"], stage["source"]) == (None, "skipped") for stage in stages.values()), found
    assert {stage["skipped"] for stage in stages.values()} == {
        "`train_clip.source` is none",
        "there is no CLIP",
        "there is no prior",
        "there are no images",
    }


def test_while_an_engine_runs_nothing_is_measured(stale, monkeypatch):
    stale("report")
    monkeypatch.setattr(plan, "engine_runs", lambda: True)
    monkeypatch.setattr(plan, "in_miniature", lambda *_: pytest.fail("it was measured"))
    found, said = planned()
    assert found["report"]["source"] == "not measured" and "stages are running" in said["assumed"][0]
    assert "0 s and more" in plan.plan()


def test_stale_stages_only_unless_named(stale, unmeasured):
    stale("score_generator", "report")
    text = plan.plan()
    assert [line.split()[0] for line in text.splitlines()[2:4]] == ["score_generator", "report"]
    assert "train_generator" not in text
    named = json.loads(plan.plan(["ingest", "report"], in_json=True))["stages"]
    assert [(stage["stage"], stage["stale"]) for stage in named] == [
        ("ingest@first", False),
        ("ingest@second", False),
        ("report", True),
    ]
    stale()
    assert "all stages are up to date" in plan.plan()
    with pytest.raises(DarkroomError, match="there is no stage `train_dti`"):
        plan.plan(["train_dti"])
    assert plan.choose([], KNOWN, set(), True) == KNOWN
    assert plan.choose(["encode_latents@second"], KNOWN, set(), False) == ["encode_latents@second"]


def test_inputs_that_dvc_hashes_for_the_first_time_count_for_no_stage(stale, unmeasured, monkeypatch):
    stale("report")
    dag, hashed = plan.ask_dvc(), []

    def ask_dvc():
        hashed.append(True)
        return dag

    clock = SimpleNamespace(process_time=lambda: time.process_time() + (3 if hashed else 0))  # the first takes 3 s
    monkeypatch.setattr(plan, "time", clock)
    monkeypatch.setattr(plan, "_IMPORTS", 1.0)
    monkeypatch.setattr(plan, "ask_dvc", ask_dvc)
    found = plan.planned()
    assert found is not None and len(hashed) == 2 and 1 < found.whole.between < 3


def test_what_was_measured_here_is_not_measured_again(stale, monkeypatch):
    clone = stale(*KNOWN)
    change(clone, "run", "device", value="cpu")  # writes every default
    measured = []

    def made(submit, names, *_):
        measured.append(sorted(names))
        return {
            name: StagePlan(name, 3, 5.0, 7.0, {"weights": 1}, {"outputs": at}, seconds=0.5 + at)
            for at, name in enumerate(names)
        }

    monkeypatch.setattr(plan, "in_miniature", made)
    stages, _ = planned("encode_latents", "score_tokenizer")
    again, found = planned("encode_latents", "score_tokenizer")
    assert len(measured) == 1 and any("--no-history" in line for line in found["assumed"])
    for name, stage in stages.items():
        assert again[name]["source"] == "earlier plan"
        for same in ("seconds", "parameters", "forward", "memory", "disk"):
            assert again[name][same] == stage[same]
    planned("encode_latents", history=False)
    change(clone, "score_tokenizer", "grid_images", value=5)  # of one stage
    planned("encode_latents", "score_tokenizer")
    change(clone, "train_tokenizer", "training", "images", value=96)  # above both
    planned("encode_latents", "score_tokenizer")
    both = measured[0]
    assert measured[1:] == [both[:2], both[2:], both]
    (clone / "logs/plans.json").write_text("{")
    assert planned("score_tokenizer")[0]["score_tokenizer"]["source"] == "measured"


def test_the_latest_plans_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kept, "_MOST", 2)
    for key in "cab":
        kept.store({key: StagePlan("x", seconds=ord(key))})
    kept.store({"a": StagePlan("x", seconds=1.0)})
    assert {key: each.seconds for key, each in kept.stored().items()} == {"b": 98, "a": 1.0}
    for damage in ("[]", "null", '{"a": 1}', "["):
        (tmp_path / "logs/plans.json").write_text(damage)
        assert kept.stored() == {}
    shutil.rmtree(tmp_path / "logs")
    (tmp_path / "logs").write_text("no folder")
    kept.store({"a": StagePlan("x")})  # costs the next plan some seconds


def test_what_does_not_fit_is_not_run_and_what_follows_has_no_time(stale, monkeypatch):
    stale("train_extractor", "reference_stats")
    monkeypatch.setattr(rehearsal, "_available", lambda: 1000)
    measure, measured = plan.in_miniature, []

    def recorded(*given):
        measured.append(measure(*given))
        return deepcopy(measured[-1])

    monkeypatch.setattr(plan, "in_miniature", recorded)
    stages, found = planned()
    assert stages["train_extractor"]["source"] == "too large" and stages["train_extractor"]["parameters"] > 0
    follows = stages["reference_stats"]
    assert follows["source"] == "not measured" and not follows["notes"]
    assert any(
        "train_extractor: it needs about" in line and "run.micro_batch" in line for line in found["assumed"]
    ) or ("lower `run.micro_batch`" in stages["train_extractor"]["notes"][0])
    monkeypatch.setattr(plan, "in_miniature", lambda *_: measured.pop(0))  # the same once more, as text
    text = plan.plan()
    assert "?" in text and "and more" in text and not measured


def test_a_stage_that_fails_in_miniature_says_why(stale):
    clone = stale()
    change(clone, "reference_stats", "extractors", value=["in_domain", "inception"])
    change(clone, "reference_stats", "inception", "weights", value="dvc.yaml")  # which holds no weights
    failed = planned("reference_stats")[0]["reference_stats"]
    assert failed["source"] == "not measured" and "dvc.yaml" in failed["notes"][0]


def test_parameters_that_do_not_fit_are_refused_before_anything_runs(stale, unmeasured):
    change(stale(*KNOWN), "train_generator", "training", "batch", value=-1)
    with pytest.raises(DarkroomError, match=r"train_generator\.training\.batch"):
        plan.plan()


def test_a_large_data_set_is_planned_on_a_part_of_it(stale, monkeypatch):
    stale()
    whole, _ = planned("ingest")
    monkeypatch.setattr(plan, "IMAGES", 130)
    part, found = planned("ingest")
    assert any("1 in 2 and 1 in 4 of them" in line for line in found["assumed"])
    for name in whole:
        assert part[name]["disk"]["outputs"] == pytest.approx(whole[name]["disk"]["outputs"], rel=0.2)


def test_what_grows_with_the_images_is_a_line_through_two_points():
    """5 s and 0.01 s an image; 1,000 images in all, of which 100 and 50 were run."""
    small, smaller = (
        StagePlan("x", 1, flops, disk={"outputs": 7 * n}, seconds=5 + n / 100)
        for n, flops in ((100, 200.0), (50, 100.0))
    )
    found = grown(small, smaller, 10)
    assert (found.seconds, found.forward, found.disk) == (pytest.approx(15), 2000, {"outputs": 7000})
    trained = replace(small, backward=1.0)
    assert grown(trained, smaller, 10) is trained and grown(small, smaller, 1) is small


def test_without_a_second_point_there_is_no_line_and_the_reason_stays():
    small = StagePlan("x", seconds=3.0, source="measured", disk={"outputs": 1})
    failed = StagePlan("x", source="not measured", notes=["x could not be run in miniature: too few images"])
    found = grown(small, failed, 10)
    assert (found.source, found.seconds, found.notes) == ("not measured", 0.0, failed.notes)


def test_the_table_is_aligned_and_ends_with_its_total():
    plans = [
        StagePlan("ingest@first", seconds=10.0),
        StagePlan("train_prior", source="skipped", skipped="there is no CLIP"),
        StagePlan("train_generator", 1234, 1e6, 2e6, {"weights": 10_000}, {"outputs": 10**6}, 50.0, notes=["a note"]),
    ]
    whole = Whole(bodies=60.0, dvc=100.0, snakemake=80.0, cores=2, between=5.0, load=1.0)
    lines = as_text(plans, whole, ["a thing"]).splitlines()
    assert " ".join(lines[3].split()) == "train_generator 1,234 1 M + 2 M 10 kB 1 MB 50 s measured"
    assert lines[5].split()[0] == "total" and lines[5].endswith("1 min 00 s")
    engines = ["`snakemake --cores 2`, in parallel: 1 min 20 s", "`dvc repro`, one after another: 1 min 40 s"]
    engines.append("skipped, nothing to do: train_prior (there is no CLIP)")
    assert lines[6:] == ["", *engines, "", "Assumed:", "- a thing.", "- a note."]


def test_what_ran_here_decides():
    plans = [StagePlan("train_generator", seconds=50.0), StagePlan("sample_generator", seconds=9.0)]
    plan._recall(plans, {"train_generator": Run(40.0, alike=True), "sample_generator": Run(8.0, alike=False)})
    found = [(each.seconds, each.source) for each in plans]
    assert found == [(40.0, "last run"), (9.0, "measured")]


def test_on_a_busy_machine_the_work_counts_and_on_a_quiet_one_the_wall():
    def settled(*walls):
        plans = [StagePlan("train_generator", seconds=50.0, wall=wall, work=10.0) for wall in walls]
        load = plan._rest(plans)
        return load, [each.seconds for each in plans]

    assert settled(11.0, 10.0) == (1.05, [pytest.approx(55.0), 50.0])
    assert settled(30.0, 10.0) == (2.0, [50.0, 50.0])
    whole = Whole(60.0, 100.0, 80.0, 2, 5.0, load=2.0)
    assert "with this load, times are 2.0 times as long" in " ".join(plan._assumptions(100, 1, 2, whole, []))
    assert "with this load" not in " ".join(plan._assumptions(100, 1, 2, replace(whole, load=1.1), []))


def test_stages_of_one_thread_run_side_by_side_and_the_others_alone(monkeypatch):
    """On two cores, each as soon as those that it needs have ended."""
    monkeypatch.setattr(plan, "core_count", lambda: 2)
    beside, waiting = [], {}

    def submit(task, name, on):
        waiting[name] = Future()
        return waiting[name]

    def wait(running, return_when):
        beside.append(sorted(waiting))
        name = min(waiting)
        waiting.pop(name).set_result(StagePlan(name))
        return SimpleNamespace(done={future for future in running if future.done()})

    monkeypatch.setattr(plan, "wait", wait)
    names = ["ingest@first", "catalog", "train_generator", "train_clip", "score_generator"]
    needs = {name: set() for name in names} | {"score_generator": {"train_generator"}}
    params = {"run": {"ingest_processes": 2, "device": "cpu"}, "train_generator": {"training": {"threads": 2}}}
    found = plan.in_miniature(submit, names, Miniature(Path(), {}), Dag(names, set(), needs), params)
    assert found.keys() == set(names)
    assert beside == [
        ["train_generator"],
        ["ingest@first"],
        ["catalog", "train_clip"],
        ["score_generator", "train_clip"],
        ["train_clip"],
    ]


def test_a_last_run_of_another_model_says_nothing_of_this_one():
    dag = Dag(
        ["train_generator", "sample_generator", "report"],
        {"train_generator", "sample_generator"},
        {"sample_generator": {"train_generator"}},
    )
    last = {name: Run(8.0, alike=True) for name in dag.stages}
    assert plan._comparable(last, dag).keys() == {"train_generator", "report"}


@pytest.mark.slow
def test_two_processes_measure_what_one_would(clone, monkeypatch):
    """They load what stages load, and their plans come back whole."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    names = ["ingest@first", "ingest@second", "catalog", "train_extractor"]
    dag = Dag(
        names, set(names), {name: set(names[:at]) - ({names[0]} if at == 1 else set()) for at, name in enumerate(names)}
    )
    with forks(2, "darkroom.tools.plan.rehearsal") as submit, scratch() as folder:
        on = Miniature(folder, count_images(dag.stale))
        found = plan.in_miniature(submit, names[2:], on, dag, read_params(Path("params.yaml")))
    trained = found["train_extractor"]
    assert trained.parameters > 0 and trained.seconds > 0 and trained.wall > 0 < trained.work and not trained.notes
    assert found["train_extractor"].seconds > found["catalog"].seconds > 0
