"""What `darkroom init` makes of settings that are quicker here, by trainings that only say what they take."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from darkroom.check.check import check
from darkroom.cli import main
from darkroom.errors import DarkroomError
from darkroom.params.stage import read_yaml
from darkroom.tools.init import command
from darkroom.tools.init.measuring import Measured
from darkroom.tools.init.proposal import TIERS
from darkroom.tools.plan.plan import Job, Planned
from darkroom.tools.plan.table import Whole
from darkroom.tools.tune.search import NOTHING, Found
from darkroom.tools.tune.trials import Trials
from tools.tune.test_search import EXACTLY, NOW, Machine

TUNED = command.tuned
STAGES = ["train_tokenizer", "train_generator"]  # not the evaluator's: scores of two runs are of one scale


@pytest.fixture
def machine(clone, quick, monkeypatch):
    """Returns what lets each training be found as one says; the parameters with which they are tried are kept."""

    def says(lacks=(), **machines):
        @contextmanager
        def trials(names, log):
            tried.append(read_yaml(clone / "params.yaml"))
            assert set(names) == set(STAGES)

            def attempt(stage, changes, exact):
                return machines.get(stage, Machine())(changes)

            yield Trials(STAGES, STAGES, dict.fromkeys(lacks, "catalog"), attempt)

        tried: list[dict] = []
        monkeypatch.setattr(command, "trials", trials)
        monkeypatch.setattr(command, "tuned", TUNED)
        return tried

    return says


def images(clone):
    params = read_yaml(clone / "params.yaml")
    return {stage: params[stage]["training"]["images"] for stage in STAGES}


def init(clone, minutes):
    assert main(["init", "digits", "--minutes", str(minutes)]) == 0
    check()
    return images(clone)


def test_what_pays_is_written_with_its_reason_and_makes_trainings_longer(clone, machine, capsys):
    machine()
    plain = init(clone, 30)
    tried = machine(train_tokenizer=Machine({("precision", "bf16"): 0.5}))
    longer = init(clone, 30)
    text = (clone / "params.yaml").read_text()
    assert "precision: bf16" in text and "takes 0.50 of the time" in text
    assert read_yaml(clone / "params.yaml")["train_tokenizer"]["training"]["precision"] == "bf16"
    assert longer["train_tokenizer"] > 1.05 * plain["train_tokenizer"]
    assert longer["train_generator"] >= plain["train_generator"]
    assert tried[0]["train_generator"]["training"]["images"] == plain["train_generator"]
    said = capsys.readouterr().out
    assert "trying precision" in said


def test_a_short_run_is_not_worth_the_minute(clone, machine):
    tried = machine(train_tokenizer=Machine({("precision", "bf16"): 0.5}))
    init(clone, 5)
    assert not tried


def test_what_departs_is_taken_back(clone, machine):
    now = {**NOW, "precision": "bf16"}

    def departs(changes):
        lossy = float({**now, **(changes or {})}["precision"] == "bf16")
        return replace(EXACTLY, now=now, departure=lossy, seconds=1.0 - 0.5 * lossy)

    machine(train_generator=departs)
    init(clone, 30)
    assert read_yaml(clone / "params.yaml")["train_generator"]["training"]["precision"] == "fp32"
    assert "losses or gradients depart" in (clone / "params.yaml").read_text()


def test_what_cannot_run_here_is_taken_back(clone, machine):
    now = {**NOW, "precision": "bf16"}

    def fails(changes):
        half = {**now, **(changes or {})}["precision"] == "bf16"
        return replace(EXACTLY, now=now, why="it was ended by a signal" if half and changes is not None else "")

    machine(train_tokenizer=fails)
    init(clone, 30)
    assert read_yaml(clone / "params.yaml")["train_tokenizer"]["training"]["precision"] == "fp32"
    assert "# tried here: otherwise it cannot run" in (clone / "params.yaml").read_text()


def test_what_pays_and_is_not_allowed_is_said_and_left_out(clone, machine, monkeypatch, capsys):
    def refuses(before, choices, *head):
        if any(key.endswith(".compile") for key in choices):
            raise DarkroomError("no compilation of this one.")
        return text_of(before, choices, *head)

    text_of = command.text_of
    monkeypatch.setattr(command, "text_of", refuses)
    long = replace(EXACTLY, updates=100_000)
    machine(
        train_tokenizer=Machine({("compile", True): 0.5}, long), train_generator=Machine({("precision", "bf16"): 0.5})
    )
    init(clone, 30)
    assert (
        "The settings that are faster for train_tokenizer are not allowed here: no compilation"
        in capsys.readouterr().out
    )
    training = read_yaml(clone / "params.yaml")["train_generator"]["training"]
    assert training["precision"] == "bf16"


def test_a_job_takes_less_by_what_is_saved_whatever_its_length(clone, quick):
    jobs = {"train_tokenizer": Job(103.0, 1), "train_decoder@base": Job(203.0, 1)}
    found = Planned([], Whole(0.0, 0.0, 0.0, 2, 0.0, 1.0), {}, [], {name: set() for name in jobs}, jobs)
    lengths = {"train_tokenizer": 1000, "train_decoder": 1000}
    measured = Measured(TIERS[0], lengths, lengths, found)
    longer = {"train_tokenizer": 2000, "train_decoder": 1000}
    spared = measured.sparing({"train_tokenizer": 100.0, "train_decoder@base": 50.0}, longer)
    assert spared.job_seconds("train_tokenizer", 2.0) == pytest.approx(203 - 100)
    assert spared.job_seconds("train_tokenizer", 1.0) == pytest.approx(103 - 50)
    assert spared.job_seconds("train_decoder@base", 1.0) == pytest.approx(203 - 50)


def test_only_what_changes_no_other_training_is_tried(clone, machine):
    """Threads follow from what runs side by side, and the keys of `run` are everybody's."""
    found = Machine()
    machine(train_tokenizer=found)
    init(clone, 30)
    keys = {key for changes in found.asked for key in changes}
    assert "precision" in keys and keys <= {"precision", "tf32", "channels_last", "compile"}


def test_what_cannot_be_tried_stays_as_it_was_proposed(clone, machine):
    machine()
    plain = init(clone, 30)
    before = (clone / "params.yaml").read_text()
    machine(lacks=["train_generator"], train_tokenizer=lambda changes: Found(why=NOTHING))
    assert init(clone, 30) == plain
    found = (clone / "params.yaml").read_text()
    assert "were not tried: catalog cannot run" in found and f"were not tried: {NOTHING}" in found
    assert [line for line in found.splitlines() if "not tried" not in line] == before.splitlines()
