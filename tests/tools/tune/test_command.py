"""`darkroom tune`: what it says, and what it writes."""

import os
import re
from contextlib import contextmanager
from dataclasses import replace

import pytest

from darkroom.check.check import check
from darkroom.cli import main
from darkroom.errors import DarkroomError
from darkroom.params.stage import read_yaml
from darkroom.tools.plan.forks import Lost
from darkroom.tools.plan.plan import Dag
from darkroom.tools.plan.table import StagePlan
from darkroom.tools.tune import command, search
from darkroom.tools.tune.command import tune
from darkroom.tools.tune.search import Result
from tools.plan.conftest import clone  # noqa: F401
from tools.tune.test_search import EXACTLY, NOW, Machine

STAGES = ["ingest@first", "train_extractor", "train_generator", "train_classifier"]
UNETS = ["ingest@first", "train_decoder@base", "train_decoder@up"]
IDLE = Result(why=search.NOTHING)


def test_while_an_engine_runs_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(command, "engine_runs", lambda: True)
    monkeypatch.setattr(command, "_trials", lambda *_: pytest.fail("it was tried"))
    (said,) = tune()
    assert "try again when they finish" in said


@pytest.fixture
def machine(clone, monkeypatch):  # noqa: F811
    """Returns what lets `tune` find the same of each training, but for those that are named; the clone's folder."""

    @contextmanager
    def nothing(*given):
        yield None

    def says(machine, others=(), stages=STAGES):
        others = dict(others)

        def submit(task, stage, on, changes, exact):
            class Done:
                def result(self):
                    found = others.get(stage, machine)
                    return found(changes) if callable(found) else found

            return Done()

        @contextmanager
        def forks(count, *modules, **options):
            assert os.environ["OMP_NUM_THREADS"] == "2"
            yield submit

        monkeypatch.setattr(command, "forks", forks)
        monkeypatch.setattr(command, "count_images", lambda stale: {})
        monkeypatch.setattr(command, "scratch", nothing)
        monkeypatch.setattr(command, "core_count", lambda: 2)
        monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
        needs = {name: {stages[0]} - {name} for name in stages}
        monkeypatch.setattr(command, "ask_dvc", lambda: Dag(stages, set(stages), needs))
        monkeypatch.setattr(command, "in_miniature", lambda _, names, *rest: {name: StagePlan(name) for name in names})
        return clone

    return says


def value(clone, *path):  # noqa: F811
    """Return what params.yaml says under a key; None where it says nothing."""
    found = read_yaml(clone / "params.yaml")
    for name in path:
        found = (found or {}).get(name)
    return found


def test_what_pays_is_said_and_written_where_that_is_wanted(machine):
    quick = Machine({("threads", 2): 0.6, ("precision", "bf16"): 0.8})
    clone = machine(quick, {"train_classifier": IDLE})  # noqa: F811
    before = (clone / "params.yaml").read_text()
    said = "\n".join(tune())
    assert "train_extractor: 1,000 updates of 64 images" in said and "train_classifier:" not in said
    assert "train_generator.training.threads: 2" in said and "--write" in said
    assert (clone / "params.yaml").read_text() == before
    list(tune(write=True))
    check()
    for stage in ("train_extractor", "train_generator"):
        assert value(clone, stage, "training", "threads") == 2
        assert value(clone, stage, "training", "precision") == "bf16"
    assert value(clone, "train_classifier", "training", "precision") != "bf16"


def test_each_setting_is_told_of_as_soon_as_it_was_tried(machine):
    quick, tried = Machine(), []
    machine(lambda changes: tried.append(changes) or quick(changes))
    lines, seen = [], {}
    for line in tune(["train_extractor"]):
        lines.append(line)
        seen[line.strip().partition("  ")[0]] = len(tried)
    assert seen["as it is"] < seen["threads: 2"] < seen["precision: bf16"] < len(tried)
    table = lines[2 : lines.index(next(line for line in lines if "Differences are from exact" in line))]
    ends = {line.index(cell) + len(cell) for line in table for cell in ("updates/s", "all updates") if cell in line}
    assert len(ends) == 2
    assert all(line[at - 1] != " " and line[at : at + 2] in ("  ", "") for line in table for at in ends)


def test_each_u_net_has_its_own_keys_and_threads_that_all_share_are_not_tried(machine):
    quick = {("threads", 2): 0.5, ("precision", "bf16"): 0.5}
    clone = machine(Machine(quick), {"train_decoder@up": Machine()}, UNETS)  # noqa: F811
    list(tune(write=True))
    assert value(clone, "train_decoder", "unets", "base", "training", "precision") == "bf16"
    assert value(clone, "train_decoder", "unets", "up", "training", "precision") is None
    assert value(clone, "train_decoder", "training", "threads") != 2
    assert value(clone, "train_decoder", "training", "precision") != "bf16"


def test_settings_that_depart_are_taken_back(machine):
    now = {**NOW, "precision": "bf16"}

    def lossy(changes):
        return replace(EXACTLY, now=now, departure=float({**now, **(changes or {})}["precision"] == "bf16"))

    clone = machine(lossy)  # noqa: F811
    list(tune(["train_extractor"], write=True))
    assert value(clone, "train_extractor", "training", "precision") == "fp32"


def test_what_is_not_allowed_here_is_said_and_the_rest_written(machine, monkeypatch):
    clone = machine(Machine({("threads", 2): 0.6, ("compile", True): 0.5}))  # noqa: F811

    def refuses(values):
        if (values["train_extractor"]["training"] or {}).get("compile"):
            raise DarkroomError("no compilation of this one.")

    monkeypatch.setattr(command, "check", lambda values=None: values and refuses(values))
    said = "\n".join(tune(["train_extractor"], write=True))
    assert "train_extractor.training.compile: true would be faster, but is not allowed here: no compilation" in said
    assert value(clone, "train_extractor", "training", "threads") == 2
    assert not value(clone, "train_extractor", "training", "compile")


def test_nothing_that_pays_is_a_sentence_and_what_cannot_run_a_reason(machine, monkeypatch):
    broken = Result(why="it needs about 90 GB")
    machine(Machine(), {"train_classifier": IDLE, "train_generator": broken})
    said = list(tune())
    assert said[-1] == "No setting is faster: params.yaml is unchanged."
    assert "train_generator: it needs about 90 GB." in said
    said = list(tune(["train_classifier"]))
    assert said[-2:] == ["train_classifier: nothing is trained with these parameters.", "No training was tried."]
    with pytest.raises(
        DarkroomError,
        match="no training `sample_generator`; did you mean `train_generator`",
    ):
        list(tune(["sample_generator"]))
    monkeypatch.setattr(
        command, "in_miniature", lambda *_: {STAGES[0]: StagePlan(STAGES[0], source="not measured", notes=["no disk"])}
    )
    assert "train_extractor: not tried: ingest@first cannot run here" in next(iter(tune(["train_extractor"])))


def test_a_training_that_a_signal_ends_is_told_of_and_a_busy_machine_is(machine, monkeypatch):
    machine(lambda changes: Lost("was killed by a signal") if (changes or {}).get("compile") else EXACTLY)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.0, 0.0, 0.0))
    said = "\n".join(tune(["train_extractor"]))
    assert "killed by a signal" in said and said.startswith("Other processes use this machine")


def test_a_training_is_tried_in_processes_of_its_own(clone, monkeypatch, capsys):  # noqa: F811
    """The whole way once, but for DVC, with one change."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    names = ["ingest@first", "ingest@second", "catalog", "train_extractor"]
    needs = {name: set(names[:at]) - ({names[0]} if at == 1 else set()) for at, name in enumerate(names)}
    monkeypatch.setattr(command, "ask_dvc", lambda: Dag(names, set(names), needs))
    monkeypatch.setattr(search, "_options", lambda *_: [("precision", ("bf16",))])
    assert main(["tune", "train_extractor"]) == 0
    said = capsys.readouterr().out
    rows = {
        name: line
        for line in said.splitlines()
        for name in ("as it is", "precision: bf16")
        if line.startswith(f"  {name}")
    }
    differences = {name: [float(each) for each in re.findall(r"([\d.]+)%", line)] for name, line in rows.items()}
    assert differences["as it is"] == [0.0, 0.0] and differences["precision: bf16"][1] > 0
