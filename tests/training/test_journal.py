"""The journal: JSON lines always, a bar on a terminal, plain lines elsewhere; a resumed one has no line twice."""

import io
import json
import os
import re
import signal
import sys

import pytest

from darkroom.terminal.terminal import Bar, Tee
from darkroom.training import journal as module
from darkroom.training.journal import Journal
from darkroom.training.loop import train
from helpers import Screen, run, training
from tiny import Line, places


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def screen(monkeypatch):
    """A terminal, behind the stream that the runner gives a stage, and the log; `on` from the test itself."""
    screen = Screen(100)
    monkeypatch.setenv("TERM", "xterm")
    screen.log = io.StringIO()
    tee = Tee(screen.stream, screen.log, "[x] ", Bar())
    screen.on = lambda: monkeypatch.setattr(sys, "stdout", tee)  # pytest has streams of its own for fixtures
    return screen


def record(images, **more):
    return {"images": images, "learning_rate": 0.0015, "train/loss": 0.5, "train/other": 1.0, **more}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_without_a_terminal_every_record_is_a_short_plain_line(tmp_path, clock, capsys):
    journal = Journal(tmp_path / "logs" / "train.jsonl", 0, 76_800)
    clock.now += 10
    journal.step(12_345)
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
        journal.step(10 * second if second <= 80 else 800 + 100 * (second - 80))
    journal.add(record(8_800))
    (line,) = lines(tmp_path / "x")
    assert line["images_per_second"] == 100 and line["mean_images_per_second"] == 55
    assert line["seconds"] == 160 and line["seconds_left"] == 12


def test_updates_longer_than_the_window_have_a_speed(tmp_path, clock, capsys):
    journal = Journal(tmp_path / "x", 0, 1000)
    for images in (100, 200, 300):
        clock.now += 80
        journal.step(images)
    journal.add(record(300))
    assert lines(tmp_path / "x")[0]["images_per_second"] == 1.25
    assert "  1.2 images/s  9 min 20 s left of this training" in capsys.readouterr().out


def test_a_terminal_shows_a_bar_with_four_numbers_and_a_line_at_each_validation(tmp_path, clock, screen):
    screen.on()
    journal = Journal(tmp_path / "x", 0, 1000)
    clock.now += 10
    journal.step(100)
    assert screen.lines() == [f"[x]  10% |{'#' * 3:<30}| 10 images/s  1 min 30 s left"]
    journal.add(record(200))
    (bar,) = screen.lines()
    assert bar == f"[x]  20% |{'#' * 6:<30}| loss 0.5000  lr 0.0015  20 images/s  40 s left"
    clock.now += 10
    journal.add(record(400, **{"val/loss": 0.25}))
    line, bar = screen.lines()
    assert line == "[x]   400 / 1,000  loss 0.5000  val 0.2500  lr 0.0015  20 images/s  30 s left of this training"
    assert bar == f"[x]  40% |{'#' * 12:<30}| loss 0.5000  lr 0.0015  20 images/s  30 s left"
    journal.close()
    assert screen.lines() == [line]
    assert screen.log.getvalue() == line.removeprefix("[x] ") + "\n"


def test_a_bar_is_drawn_ten_times_a_second_at_most(tmp_path, clock, screen):
    screen.on()
    journal = Journal(tmp_path / "x", 0, 1000)
    for images in range(1, 301):
        clock.now += 0.01
        journal.step(images)
        screen.lines()  # reads on: a terminal that is full would wait
    assert 25 <= screen.written.count("\r") <= 31


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


@pytest.mark.parametrize("rest", ["", "\n[1]\n3\nnull\n{}\n", '{"images": "x"}\n', "\x00\x00\x00"])
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


def test_a_training_on_a_terminal_shows_its_bar_and_logs_none(tmp_path, screen):
    screen.on()
    train(Line(), training(), run(), places(tmp_path))
    screen.lines()
    bars = re.findall(r"\[x\] +\d+% \|#* *\| loss \S+  lr 0\.01  [\d,]+ images/s  [\d.]+ s left", screen.written)
    assert bars and "%" not in screen.log.getvalue()
    assert [line.split()[1] for line in screen.lines()] == ["32", "64"]
