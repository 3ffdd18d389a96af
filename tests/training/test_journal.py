"""The journal: JSON lines, and a line for the person with each; a resumed one has no line twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from darkroom.training import journal as module
from darkroom.training.journal import Journal
from darkroom.training.loop import train
from helpers import run, training
from tiny import Line, places


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def record(images, **more):
    return {"images": images, "learning_rate": 0.0015, "train/loss": 0.5, "train/other": 1.0, **more}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_without_a_terminal_every_record_is_a_short_plain_line(tmp_path, clock, capsys):
    journal = Journal(tmp_path / "logs" / "train.jsonl", 0, 76_800)
    clock.now += 10
    journal.add(record(12_345))
    clock.now += 10
    journal.add(record(24_690, **{"val/loss": 0.25, "val/loss/0.0-0.25": 0.1}))
    journal.close()
    assert capsys.readouterr().out.splitlines() == [
        "12,345 / 76,800  loss 0.5000  lr 0.0015  1,234 images/s  52 s left of this training",
        "24,690 / 76,800  loss 0.5000  val 0.2500  lr 0.0015  1,234 images/s  42 s left of this training",
    ]
    assert [line["train/other"] for line in lines(tmp_path / "logs" / "train.jsonl")] == [1.0, 1.0]


def test_the_speed_is_that_of_late_and_the_mean_stands_beside(tmp_path, clock, capsys):
    """80 s at 10 images/s, then 80 s at 100: the file tells both, and the time left follows the later."""
    journal = Journal(tmp_path / "x", 0, 10_000)
    for second in range(1, 161):
        clock.now += 1
        journal.add(record(10 * second if second <= 80 else 800 + 100 * (second - 80)))
    line = lines(tmp_path / "x")[-1]
    assert line["images_per_second"] == 100 and line["mean_images_per_second"] == 55
    assert line["seconds"] == 160 and line["seconds_left"] == 12


def test_updates_longer_than_the_window_have_a_speed(tmp_path, clock, capsys):
    journal = Journal(tmp_path / "x", 0, 1000)
    for images in (100, 200, 300):
        clock.now += 80
        journal.add(record(images))
    assert lines(tmp_path / "x")[-1]["images_per_second"] == 1.25
    assert "  1.2 images/s  9 min 20 s left of this training" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("times", "ratio"),
    [
        ({"a": (20.0, 0.2), "b": (19.0, 19.0), "saver": (1.0, 9.0)}, 2.0),  # one of two threads shares its core
        ({"a": (20.0, 0.2), "new": (15.0, 3.0)}, 1.2),
        ({"a": (20.0, 0.0), "b": (10.0, 10.0)}, 2.0),  # the first one spins while it waits
        ({"a": (9.0, 0.9)}, None),
        ({}, None),
    ],
)
def test_the_slowdown_is_of_the_computing_thread_that_waits_longest(times, ratio):
    assert (
        module.slowdown(
            {"a": (5.0, 0.0)}, {name: (run + 5 * (name == "a"), waited) for name, (run, waited) in times.items()}
        )
        == ratio
    )


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux tells how long threads wait")
def test_a_training_that_waits_for_cores_says_so_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "_WATCHED", 0.3)
    journal, core = Journal(tmp_path / "x", 0, 1000), sorted(os.sched_getaffinity(0))[:1]
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    own = os.sched_getaffinity(0)
    try:
        for process in (0, *(each.pid for each in neighbours)):
            os.sched_setaffinity(process, core)
        for images in range(100, 400, 100):
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                pass
            journal.add(record(images))
    finally:
        os.sched_setaffinity(0, own)
        for each in neighbours:
            each.kill()
            each.wait()
    notices = [line for line in capsys.readouterr().out.splitlines() if line.startswith("other work")]
    assert len(notices) == 1 and float(notices[0].split(" at least ")[1].split()[0]) >= 1.5


@pytest.fixture
def begun(tmp_path, clock):
    """The journal of a training killed in the midst of a line."""
    path = tmp_path / "train.jsonl"
    journal = Journal(path, 0, 64)
    for images in (16, 32, 48):
        clock.now += 10
        journal.add(record(images))
    with path.open("a") as file:
        file.write('{"images": 6')
    return path


def test_a_resumed_journal_has_no_line_twice_and_none_torn(begun, clock):
    before = lines_of(begun)
    journal = Journal(begun, 40, 64)
    clock.now += 5
    journal.add(record(48))
    journal.add(record(64))
    assert lines_of(begun)[:2] == before[:2]
    assert [line["images"] for line in lines(begun)] == [16, 32, 48, 64]
    seconds = [line["seconds"] for line in lines(begun)]
    assert seconds == [10, 20, 25, 25]


def lines_of(path):
    return path.read_text().splitlines()


def test_a_line_on_the_very_place_of_the_checkpoint_stays(begun):
    Journal(begun, 32, 64)
    assert [line["images"] for line in lines(begun)] == [16, 32]


def test_a_new_training_begins_a_new_journal(begun):
    Journal(begun, 0, 64)
    assert begun.read_text() == ""


def test_lines_of_another_training_go(begun):
    Journal(begun, 40, 64, [record(16), {**record(32), "train/loss": 0.6}])
    assert [line["images"] for line in lines(begun)] == [16]


@pytest.mark.parametrize("rest", ["\n[1]\n3\nnull\n{}\n", "\x00\x00\x00"])
def test_a_journal_that_is_damaged_stops_no_training(begun, rest):
    begun.write_text(rest)
    Journal(begun, 32, 64).add(record(48))
    assert [line["images"] for line in lines(begun)] == [48]


def test_a_killed_and_resumed_training_has_every_record_once(tmp_path):
    """The checkpoint is older than the last line: a stop after it, as a kill would."""

    def hook(seen):
        if seen == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    whole = train(Line(), training(), run(), places(tmp_path / "whole"))
    with pytest.raises(SystemExit):
        train(Line(hook), training(), run(), places(tmp_path))
    path = tmp_path / "logs" / "train_line" / "train.jsonl"
    with path.open("a") as file:  # what was written after the checkpoint
        file.write(json.dumps({"images": 48, "seconds": 9.0}) + "\n" + '{"ima')
    train(Line(), training(), run(), places(tmp_path))
    found = [{name: line[name] for name in whole.records[0]} for line in lines(path)]
    assert found == [{name: each[name] for name in whole.records[0]} for each in whole.records]
