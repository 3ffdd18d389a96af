"""The last run as a chart: which bodies are of it, which ones the end waited for, and how they are drawn."""

import json
import shutil
from pathlib import Path

import pytest

from darkroom.cli import main
from darkroom.errors import DarkroomError
from darkroom.tools.times import Body, last_run, times, waited_for
from helpers import DIGITS

ROOT = Path(__file__).resolve().parents[2]
# Names, and the seconds at which each body began and ended.
RUN = {
    "catalog": (0, 2),
    "train_tokenizer": (3, 40),
    "train_extractor": (3, 20),
    "score_tokenizer": (41, 41.5),
    "encode_latents@first": (41, 45),
    "train_generator": (46, 90),
    "report": (91, 95),
}


def history(bodies, begin=0.0, **more):
    """Return the events of a run, in the order of their times."""
    events = [
        {"stage": stage, "event": event, "time": begin + time, **more}
        for stage, at in bodies.items()
        for event, time in zip(("start", "end"), at, strict=True)
    ]
    return sorted(events, key=lambda event: event["time"])


def test_the_last_run_has_the_bodies_of_its_engine_that_ended():
    earlier = history(RUN, run="1")
    killed = [{"stage": "train_generator", "event": "start", "time": 99.0, "run": "2"}]
    experiment = history({"train_generator": (100, 140), "report": (142, 143)}, run="3")  # seconds later
    continued = history({"catalog": (150, 151), "train_tokenizer": (9000, 9100)}, run="4")  # after a pause
    assert {body.stage for body in last_run(earlier)} == RUN.keys()
    assert [(body.stage, body.begin) for body in last_run([*earlier, *killed, *experiment])] == [
        ("train_generator", 100),
        ("report", 142),
    ]
    assert [body.begin for body in last_run([*earlier, *killed, *experiment, *continued])] == [150, 9000]
    assert last_run([]) == [] == last_run(history({"code": (0, 1)}))
    assert "code" not in {body.stage for body in last_run(history({"code": (-60, -58), **RUN}))}  # of `snakemake -n`


def test_lines_of_older_versions_which_name_no_run_still_count():
    assert {body.stage for body in last_run(history(RUN))} == RUN.keys()
    assert [body.begin for body in last_run([*history(RUN), *history({"report": (99, 100)}, run="1")])] == [99]


AFTER = {
    "catalog": {"train_tokenizer", "train_extractor", "encode_latents", "train_generator", "report"},
    "train_tokenizer": {"encode_latents", "train_generator", "report"},
    "encode_latents": {"train_generator", "report"},
    "train_generator": {"report"},
    "train_extractor": {"report"},
}


def test_the_end_waited_for_the_last_of_what_each_needs():
    bodies = [Body(stage, *at) for stage, at in RUN.items()]
    chain = {body.stage for body in waited_for(bodies, AFTER)}
    assert chain == RUN.keys() - {"train_extractor", "score_tokenizer"}


def test_one_after_another_the_end_waited_for_all():
    names = ["catalog", "train_tokenizer", "train_extractor", "report"]
    bodies = [Body(name, 10 * at, 10 * at + 9) for at, name in enumerate(names)]
    assert waited_for(bodies, AFTER) == set(bodies)


def test_of_another_part_nothing_is_needed():
    after = {"ingest": {"encode_latents"}}
    bodies = [Body("ingest@one", 0, 8), Body("ingest@two", 0, 9), Body("encode_latents@one", 10, 20)]
    assert {body.stage for body in waited_for(bodies, after)} == {"ingest@one", "encode_latents@one"}


def test_it_is_drawn_to_the_width(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, tmp_path)
    with pytest.raises(DarkroomError, match="no finished stage"):
        times()
    (tmp_path / "logs").mkdir()
    text = "".join(f"{json.dumps(event)}\n" for event in history(RUN, begin=1e9))
    (tmp_path / "logs/runs.jsonl").write_text(f'{text}{{"stage": "cut o')
    lines = times(width=80).splitlines()
    assert max(map(len, lines[:7])) == 80
    bars = {line.split()[0]: (line.index("█"), line.count("█")) for line in lines if "█" in line}
    assert bars.keys() == RUN.keys() - {"score_tokenizer"}
    assert bars["train_tokenizer"][0] == bars["train_extractor"][0] > bars["catalog"][0]
    assert bars["train_tokenizer"][1] > 1.9 * bars["train_extractor"][1]
    assert sum(bars["report"]) == 80
    assert "train_generator *" in "\n".join(lines) and "train_extractor *" not in "\n".join(lines)
    assert lines[-2] == "7 stages in 1 min 35 s; * on the critical path: 1 min 31 s of that."
    assert lines[-1] == "Stages under 1 s are not shown."
    assert main(["times"]) == 0 and "train_tokenizer" in capsys.readouterr().out
