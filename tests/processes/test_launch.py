"""Several processes end together, and a person reads one sentence. Real processes, and real signals to them."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from darkroom.errors import DarkroomError
from darkroom.processes.launch import Ranks, environments, launch, rank, reporting_errors, supervise

# A rank that trains: each update is 20 ms, a signal lets it end, and rank 0 then takes its time for a checkpoint.
TOY = """
import os, signal, sys, time
from darkroom.processes.launch import write_status, rank
from darkroom.processes.stopping import watch
place, story = rank(), sys.argv[1]
asked = []
if not story.startswith("early"):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: asked.append(number))
open(f"began-{place.number}", "w").write(f"{os.getpid()} {os.getsid(0)}")
if story == "orphan":
    watch(place.supervisor)
if place.number == 1:
    if story == "word":
        write_status("error", "only I saw it")
        sys.exit(1)
    if story == "fault":
        write_status("traceback", "Traceback: boom")
        sys.exit(1)
    if story == "code":
        sys.exit(3)
    if story in ("killed", "early, killed"):
        os.kill(os.getpid(), signal.SIGKILL)
if story == "all say":
    write_status("error", "all saw it")
    sys.exit(1)
if place.number == 0 and story in ("word", "killed"):  # for want of the other, and first
    write_status("traceback", "Traceback: connection closed")
    sys.exit(1)
for update in range(1500):
    time.sleep(0.02)
    if asked and story != "deaf":
        if place.number == 0:
            time.sleep(0.3)
            open("checkpoint", "w").write(str(len(asked)))
        sys.exit(128 + asked[0])
    if story == "short" and update == 5:
        break
"""
# What starts them; a traceback, a sentence and the code are what a person gets.
ABOVE = """
import sys
from darkroom.errors import DarkroomError
from darkroom.processes.launch import Ranks, environments, supervise
Ranks.GRACE, Ranks.PATIENCE = 0.5, float(sys.argv[2])
try:
    supervise([([sys.executable, "toy.py", sys.argv[1]], extra) for extra in environments(2)], 2)
except DarkroomError as error:
    print(error)
    sys.exit(1)
"""


@pytest.fixture
def start(tmp_path):
    """A function that starts a supervisor with two ranks of a story in a folder of its own."""
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "above.py").write_text(ABOVE)
    started = []

    def begin(story, patience=30.0, wait=True):
        words = [sys.executable, "above.py", story, str(patience)]
        environment = os.environ | {"PYTHONPATH": str(Path("src").resolve())}
        pipe = subprocess.PIPE
        run = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)
        started.append(run)
        deadline = time.monotonic() + 20
        while wait and len(ranks(tmp_path)) < 2:
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.02)
        return run

    yield begin
    for run in started:
        run.kill()
        run.communicate()


def ranks(folder):
    """Return (process, session) of the ranks that have begun."""
    found = [path.read_text().split() for path in sorted(folder.glob("began-*"))]
    return [tuple(map(int, words)) for words in found if len(words) == 2]


def nobody_is_left(folder):
    return not any(psutil.pid_exists(number) for number, _ in ranks(folder))


def ended(run, timeout=20):
    out, err = run.communicate(timeout=timeout)
    return run.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_each_rank_once_and_its_code_is_that_of_the_whole(start, tmp_path, number):
    """To the whole group, as a terminal sends it: the ranks get it through the supervisor only."""
    run = start("train")
    assert all(process == session for process, session in ranks(tmp_path))
    run.send_signal(number)
    assert ended(run) == (128 + number, "", "")
    assert (tmp_path / "checkpoint").read_text() == "1" and nobody_is_left(tmp_path)


def test_a_checkpoint_is_waited_for_though_the_other_rank_has_long_ended(start, tmp_path):
    """Without limit: the patience that one who fails leaves to the others is not for those who stop as they should."""
    run = start("train", patience=-0.45)
    run.terminate()
    assert ended(run)[0] == 143 and (tmp_path / "checkpoint").exists()


def test_a_second_interrupt_stops_at_once(start, tmp_path):
    run = start("deaf")
    run.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    assert ended(run, timeout=5)[0] == 130 and nobody_is_left(tmp_path)


def test_ranks_that_had_not_begun_to_train_end_by_the_signal(start, tmp_path):
    run = start("early")
    run.terminate()
    assert ended(run) == (143, "", "") and nobody_is_left(tmp_path)


@pytest.mark.parametrize(
    ("story", "sentence", "trace"),
    [
        ("killed", r"rank 1 of 2 was ended by SIGKILL \(.*memory.*\), so the others were stopped\. The same comm", ""),
        ("early, killed", r"rank 1 of 2 was ended by SIGKILL", ""),
        ("word", r"rank 1 of 2: only I saw it$", ""),
        ("all say", r"^all saw it$", ""),
        ("fault", r"^rank 1 of 2 failed, so the others were stopped\. The same command continues from the l", "boom"),
        ("code", r"^rank 1 of 2 exited with 3, so the others were stopped\. The same command continues", ""),
    ],
)
def test_one_sentence_says_which_rank_failed_and_how(start, tmp_path, story, sentence, trace):
    """Whatever the others say for want of it."""
    code, out, err = ended(start(story, wait=False))
    assert code == 1 and re.search(sentence, out.strip()) and out.count("\n") == 1
    assert trace in err and bool(trace) == bool(err)
    assert nobody_is_left(tmp_path)


def test_a_rank_that_hears_nothing_is_killed_once_another_has_failed(start, tmp_path):
    run = start("deaf", patience=1.0)
    began = time.monotonic()
    os.kill(ranks(tmp_path)[1][0], signal.SIGKILL)
    code, out, _ = ended(run)
    assert code == 1 and "rank 1 of 2 was ended by SIGKILL" in out
    assert time.monotonic() - began > 1.4 and nobody_is_left(tmp_path)


def test_ranks_stop_by_themselves_when_their_supervisor_is_killed(start, tmp_path):
    run = start("orphan")
    run.kill()
    run.wait()
    for process, _ in ranks(tmp_path):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(process).wait(timeout=10)
    assert nobody_is_left(tmp_path) and (tmp_path / "checkpoint").read_text() == "1"


def test_ranks_that_finish_finish_the_whole(start, tmp_path):
    assert ended(start("short", wait=False)) == (0, "", "")
    assert not (tmp_path / "checkpoint").exists()


def test_ranks_that_were_asked_by_others_stop_as_one(start, tmp_path):
    """A cluster sends SIGTERM to every process by itself, and need not send it to the supervisor."""
    run = start("train")
    for process, _ in ranks(tmp_path):
        os.kill(process, signal.SIGTERM)
    assert ended(run) == (143, "", "")


def test_a_place_is_read_from_the_environment(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "DARKROOM_SUPERVISOR"):
        monkeypatch.delenv(name, raising=False)
    assert rank() is None
    monkeypatch.setenv("RANK", "1")
    assert rank() is None, "half a place is none"
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (rank().number, rank().size, rank().supervisor) == (1, 4, None)
    monkeypatch.setenv("DARKROOM_SUPERVISOR", "77")
    assert rank().supervisor == 77
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert (rank().number, rank().size) == (0, 1), "accelerate names no rank where there is but one"


def test_two_ranks_find_each_other():
    """The environment is enough for torch.distributed, without the name of this host."""
    code = (
        "import torch, torch.distributed as d; d.init_process_group('gloo');"
        "x = torch.ones(1) + d.get_rank(); d.all_reduce(x); assert x.item() == 3; d.destroy_process_group()"
    )
    supervise([([sys.executable, "-c", code], extra) for extra in environments(2)], 2)


def test_a_configuration_that_is_not_there_is_named():
    with pytest.raises(DarkroomError, match=r"`run\.accelerate` is nowhere\.yaml, which is no file"):
        launch(["train_generator"], 2, "nowhere.yaml")


def test_a_command_that_cannot_start_leaves_no_one_behind():
    sleeper = ([sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    before = set(psutil.Process().children())
    with pytest.raises(FileNotFoundError), Ranks([sleeper, (["/no/such/program"], os.environ)]):
        pass
    assert set(psutil.Process().children()) == before


@pytest.fixture
def words(tmp_path, monkeypatch):
    """The place where this process, as rank 3, leaves its words."""
    monkeypatch.setenv("DARKROOM_STATUS", str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    return lambda: json.loads((tmp_path / "3").read_text())


@pytest.mark.parametrize(("error", "kind"), [(DarkroomError("no"), "error"), (ValueError("no"), "traceback")])
def test_a_rank_leaves_its_error_to_the_supervisor(words, error, kind):
    with pytest.raises(SystemExit, match="1"), reporting_errors():
        raise error
    assert words()["kind"] == kind and words()["text"].strip().endswith("no")


def test_a_supervisor_that_is_gone_is_no_further_error(words, monkeypatch, tmp_path):
    monkeypatch.setenv("DARKROOM_STATUS", str(tmp_path / "gone"))
    with pytest.raises(SystemExit), reporting_errors():
        raise DarkroomError("no")


def test_a_stop_is_an_end_for_torchrun_and_a_stop_for_the_person(words, monkeypatch):
    """Torchrun would take 143 for a failure, and kill the rank that writes the checkpoint."""
    with pytest.raises(SystemExit, match="143"), reporting_errors():
        sys.exit(143)
    monkeypatch.setenv("DARKROOM_LAUNCHER", "accelerate")
    with pytest.raises(SystemExit) as end, reporting_errors():
        sys.exit(143)
    assert end.value.code == 0 and words()["kind"] == "stop"
    code = "import sys; from darkroom.processes.launch import reporting_errors\nwith reporting_errors(): sys.exit(143)"
    monkeypatch.setenv("PYTHONPATH", str(Path("src").resolve()))
    with pytest.raises(SystemExit, match="143"):
        supervise([([sys.executable, "-c", code], {})], 2)
