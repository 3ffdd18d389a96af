"""What stands around a stage's body: threads, device, log, terminal."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from darkroom.errors import DarkroomError
from darkroom.runner import choose_device, engine, set_threads
from helpers import Screen


def test_threads_are_set_before_numpy_and_torch_whatever_an_engine_says():
    code = (
        "import os; from darkroom.runner import set_threads; import sys; set_threads(1);"
        "assert 'numpy' not in sys.modules and 'torch' not in sys.modules;"
        "import torch; from darkroom.device import set_up_device; set_up_device(1, 'cpu');"
        "print(torch.get_num_threads())"
    )
    environment = os.environ | {"PYTHONPATH": "src", "OMP_NUM_THREADS": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_device_is_what_libraries_will_see(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "ACCELERATE_USE_CPU", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "before")
    for seen, device, chosen in [("", "cuda:3", "3"), ("4,6", "cuda:1", "6"), ("4,6", "cuda:2", "")]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
        choose_device(device)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == chosen
    choose_device("cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and os.environ["ACCELERATE_USE_CPU"] == "true"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder in which `run_stage` finds everything valid; its body is the test's."""
    from darkroom import runner

    (tmp_path / "dvc.lock").write_text("stages: {}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "_own_checkout", lambda: None)
    monkeypatch.setattr(runner, "check", lambda: "")
    monkeypatch.setattr(runner, "given", lambda stage, part: {"report": {}, "run": {"device": "auto"}})
    monkeypatch.setattr(runner, "validate", lambda model, values: values)
    for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM"):
        monkeypatch.setenv(f"{name}_NUM_THREADS", os.environ.get(f"{name}_NUM_THREADS", "1"))
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    def give(body):
        monkeypatch.setitem(sys.modules, "darkroom.stages.report", types.SimpleNamespace(run=body))
        return runner.run_stage

    return give


def history():
    return [json.loads(line)["event"] for line in Path("logs/runs.jsonl").read_text().splitlines()]


def test_a_body_that_runs_is_in_the_history_and_its_words_in_the_log(project, capsys, tmp_path):
    project(lambda params: print("hello"))("report", None)
    assert history() == ["start", "end"]
    assert "[report] hello\n" in capsys.readouterr().out
    assert (tmp_path / "logs" / "report.log").read_text().startswith("hello\ndone in ")


def test_a_body_that_fails_has_no_end(project):
    def body(params):
        raise DarkroomError("no")

    with pytest.raises(DarkroomError):
        project(body)("report", None)
    assert history() == ["start"]
    assert Path("logs/report.log").read_text() == "error: no\n"


def test_a_bar_is_gone_before_an_error_is_said(project, monkeypatch):
    def body(params):
        sys.stdout.draw(0.5, "half")
        print("warning", file=sys.stderr)
        assert screen.lines()[0] == "[report] warning" and screen.lines()[1].endswith("half")
        raise DarkroomError("no")

    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen.stream)
    monkeypatch.setattr(sys, "stderr", screen.again())
    with pytest.raises(DarkroomError):
        project(body)("report", None)
    print("darkroom report: error: no", file=sys.stderr, flush=True)
    assert screen.lines() == ["[report] warning", "darkroom report: error: no"]
    assert Path("logs/report.log").read_text() == "warning\nerror: no\n"


def test_a_full_disk_is_one_sentence_and_other_faults_keep_their_traceback(project):
    def full(params):
        raise OSError(28, "No space left on device", "models/x")

    def other(params):
        raise OSError(5, "Input/output error")

    with pytest.raises(DarkroomError, match=r"the disk is full \(models/x\): free some space"):
        project(full)("report", None)
    with pytest.raises(OSError, match="Input/output"):
        project(other)("report", None)


def test_set_threads_names_every_library(monkeypatch):
    for name in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{name}_NUM_THREADS", "9")
    set_threads(3)
    assert {os.environ[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL")} == {"3"}
    set_threads(1)


def test_a_device_that_is_not_there_is_refused():
    from darkroom.device import set_up_device

    with pytest.raises(DarkroomError, match=r"`run\.device` is cuda:1, and torch sees"):
        set_up_device(1, "cuda:1")


class Process:
    """A process as psutil shows it."""

    def __init__(self, *words):
        self.words = list(words)

    def cmdline(self):
        return self.words


def test_the_engine_is_watched_and_nothing_above_it():
    sh, dvc = Process("/bin/sh", "-c", "PYTHONPATH=src"), Process("/x/python", "/x/bin/dvc", "repro")
    worker = Process("/x/python", "-m", "dvc", "exp")
    shell, home = Process("-bash"), Process("/home/dvc-user/bash")
    assert engine([sh, dvc, shell]) == [sh, dvc] and engine([dvc, shell]) == [dvc]
    assert engine([worker, shell]) == [worker] and engine([shell, home]) == []


STAGE = "import time; from darkroom.runner import _watch_engine as w; w(); print('on', flush=True); time.sleep(60)"
ENGINE = f"""
import os, subprocess, sys
os.environ["DVC_STAGE"] = "report"
child = subprocess.Popen([sys.executable, "-c", {STAGE!r}])
print(child.pid, flush=True)
child.wait()
"""


def test_a_stage_ends_when_its_engine_is_killed(tmp_path):
    """A program called `dvc` starts a stage and is killed: the stage gets SIGTERM within seconds."""
    import psutil

    (tmp_path / "dvc").write_text(ENGINE)
    environment = os.environ | {"PYTHONPATH": str(Path("src").resolve())}
    dvc = subprocess.Popen([sys.executable, tmp_path / "dvc"], env=environment, stdout=subprocess.PIPE, text=True)
    lines = {dvc.stdout.readline().strip(), dvc.stdout.readline().strip()}
    stage = psutil.Process(int(next(iter(lines - {"on"}))))
    assert "on" in lines and stage.is_running()
    dvc.kill()
    dvc.wait()
    stage.wait(timeout=10)
