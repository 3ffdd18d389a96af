"""`darkroom tune`, where nothing is trained: what it says, and what it writes."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from darkroom.check.check import check
from darkroom.errors import DarkroomError
from darkroom.params.stage import read_yaml
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.stale import Dag
from darkroom.tools.tune import command
from darkroom.tools.tune.command import tune
from darkroom.tools.tune.search import Found
from tools.plan.conftest import clone  # noqa: F401
from tools.tune.test_search import EXACTLY, NOW, Machine

STAGES = ["ingest@first", "train_extractor", "train_generator", "train_classifier"]


@pytest.fixture
def machine(clone, monkeypatch):  # noqa: F811
    """Returns what lets `tune` find the same of each training, but for those that are named; the clone's folder."""

    @contextmanager
    def nothing(*given):
        yield None

    def says(machine, **others):
        def submit(task, stage, on, changes, exact):
            class Done:
                def result(self):
                    return others[stage] if stage in others else machine(changes)

            return Done()

        @contextmanager
        def forks(count, *modules):
            yield submit

        monkeypatch.setattr(command, "forks", forks)
        monkeypatch.setattr(command, "_miniature", nothing)
        monkeypatch.setattr(command, "core_count", lambda: 2)
        needs = {name: {STAGES[0]} - {name} for name in STAGES}
        monkeypatch.setattr(command, "ask_dvc", lambda: Dag(STAGES, set(STAGES), needs))
        monkeypatch.setattr(
            command, "in_miniature", lambda submit, names, *_: {name: StagePlan(name) for name in names}
        )
        return clone

    return says


def test_what_pays_is_said_and_written_where_that_is_wanted(machine):
    quick = Machine({("threads", 2): 0.6, ("precision", "bf16"): 0.8, ("micro_batch", 32): 0.9})
    clone = machine(quick, train_classifier=Found(why="nothing is trained"))  # noqa: F811
    before = (clone / "params.yaml").read_text()
    said = "\n".join(tune())
    assert "train_extractor: 1,000 updates of 64 images" in said and "train_classifier" not in said
    assert "train_generator.training.threads: 2" in said and "run.micro_batch: 32" in said and "--write" in said
    assert (clone / "params.yaml").read_text() == before
    list(tune(write=True))
    params = read_yaml(clone / "params.yaml")
    check(params)
    for stage in ("train_extractor", "train_generator"):
        assert params[stage]["training"]["threads"] == 2 and params[stage]["training"]["precision"] == "bf16"
    assert params["run"]["micro_batch"] == 32 and params["train_classifier"]["training"].get("precision") != "bf16"


def test_a_key_of_run_is_set_where_all_trainings_take_it(machine):
    clone = machine(Machine({("micro_batch", 32): 0.9}), train_generator=EXACTLY)  # noqa: F811
    list(tune(["train_extractor", "train_generator"], write=True))
    assert read_yaml(clone / "params.yaml")["run"].get("micro_batch") is None
    list(tune(["train_extractor"], write=True))
    assert read_yaml(clone / "params.yaml")["run"]["micro_batch"] == 32


def test_settings_that_depart_are_taken_back(machine):
    now = {**NOW, "precision": "bf16"}

    def lossy(changes):
        return replace(EXACTLY, now=now, loss=float({**now, **changes}["precision"] == "bf16"))

    clone = machine(lossy)  # noqa: F811
    list(tune(["train_extractor"], write=True))
    assert read_yaml(clone / "params.yaml")["train_extractor"]["training"]["precision"] == "fp32"


def test_nothing_that_pays_is_a_sentence_and_what_cannot_run_a_reason(machine, monkeypatch):
    machine(Machine(), train_classifier=Found(why="with these parameters nothing is trained"))
    assert list(tune(["train_extractor"]))[-1] == "Nothing pays: params.yaml stays as it is."
    assert "train_classifier: with these parameters nothing is trained." in list(tune(["train_classifier"]))
    with pytest.raises(DarkroomError, match="no training `sample_generator`"):
        list(tune(["sample_generator"]))
    monkeypatch.setattr(
        command, "in_miniature", lambda *_: {STAGES[0]: StagePlan(STAGES[0], source="not measured", notes=["no disk"])}
    )
    assert "train_extractor: not tried, as ingest@first cannot run here" in next(iter(tune(["train_extractor"])))


def test_a_training_that_a_signal_ends_is_told_of(machine):
    machine(lambda changes: None if changes.get("compile") else EXACTLY)
    assert "ended by a signal" in "\n".join(tune(["train_extractor"]))
