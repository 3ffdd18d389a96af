"""A stage stops when what it works for is gone, and when it is asked."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from darkroom.processes.stopping import engine, stoppable


class Process:
    """A process as psutil shows it."""

    def __init__(self, *words):
        self.words = list(words)

    def cmdline(self):
        return self.words


class Hidden:
    """A process of somebody else."""

    def cmdline(self):
        raise psutil.AccessDenied


def test_the_engine_is_watched_and_nothing_above_it():
    sh, dvc = Process("/bin/sh", "-c", "PYTHONPATH=src"), Process("/x/python", "/x/bin/dvc", "repro")
    worker = Process("/x/python", "-m", "dvc", "exp")
    shell, home = Process("-bash"), Process("/home/dvc-user/bash")
    assert engine([sh, dvc, shell]) == [sh, dvc] and engine([dvc, shell]) == [dvc]
    mended = Process("/x/python", "-m", "darkroom.dag.dvc", "repro")
    assert (
        engine([worker, shell]) == [worker]
        and engine([mended, shell]) == [mended]
        and engine([shell, home, Hidden()]) == []
    )


def test_the_watch_reaches_up_to_the_topmost_snakemake():
    sh, dvc = Process("/bin/sh", "-c", "PYTHONPATH=src"), Process("/x/python", "/x/bin/dvc", "repro")
    job, main = Process("/x/python", "-m", "snakemake", "--snakefile"), Process("/x/python", "/x/bin/snakemake")
    shell = Process("-bash")
    assert engine([sh, dvc, sh, job, main, shell]) == [sh, dvc, sh, job, main]
    assert engine([dvc, sh, main, Hidden(), shell]) == [dvc, sh, main]
    assert engine([sh, main, shell]) == [], "Snakemake starts stages through DVC only"


STAGE = "import time; from darkroom.processes.stopping import watch; watch(); print('on', flush=True); time.sleep(60)"
START = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {STAGE!r}])
print(child.pid, flush=True)
child.wait()
"""
ABOVE = "import subprocess, sys; subprocess.Popen([sys.executable, *sys.argv[1:]]).wait()"


def begin(folder, *programs, stage="report"):
    """Start programs, each by the one before it, the last of which starts a stage; return the first and the stage."""
    for name in programs[:-1]:
        (folder / name).write_text(ABOVE)
    (folder / programs[-1]).write_text(START)
    environment = os.environ | {"PYTHONPATH": str(Path("src").resolve()), "DVC_STAGE": stage}
    if not stage:
        del environment["DVC_STAGE"]
    words = [str(folder / name) for name in programs]
    first = subprocess.Popen([sys.executable, *words], env=environment, stdout=subprocess.PIPE, text=True)
    lines = {first.stdout.readline().strip(), first.stdout.readline().strip()}
    assert "on" in lines
    return first, psutil.Process(int(next(iter(lines - {"on"}))))


@pytest.mark.parametrize("programs", [["dvc"], ["snakemake", "dvc"]])
def test_a_stage_ends_when_its_engine_is_killed(tmp_path, programs):
    """Under Snakemake, DVC goes on when Snakemake is killed."""
    engine, stage = begin(tmp_path, *programs)
    below = engine_processes(engine)
    engine.kill()
    engine.wait()
    stage.wait(timeout=10)
    for process in below:
        process.wait(timeout=10)


def engine_processes(engine):
    return psutil.Process(engine.pid).children(recursive=True)


def test_a_stage_outlives_what_stands_above_the_engine_and_one_by_hand_outlives_all(tmp_path):
    for folder, programs, stage in [("one", ["shell", "dvc"], "report"), ("two", ["dvc"], "")]:
        (tmp_path / folder).mkdir()
        top, process = begin(tmp_path / folder, *programs, stage=stage)
        others = engine_processes(top)
        top.kill()
        top.wait()
        time.sleep(1.5)
        assert process.is_running(), programs
        for other in others:
            other.kill()


WAIT = """
import time
from darkroom.processes.stopping import stoppable
try:
    with stoppable({supervised}):
        print("on", flush=True)
        time.sleep(60)
finally:
    print("cleaned", flush=True)
"""


@pytest.mark.parametrize(
    ("number", "supervised", "code"),
    [
        (signal.SIGTERM, False, 143),
        (signal.SIGINT, False, 130),
        (signal.SIGHUP, False, 143),
        (signal.SIGTERM, True, -15),
    ],
)
def test_a_signal_ends_a_stage_with_its_code_and_in_order(number, supervised, code):
    words = [sys.executable, "-c", WAIT.format(supervised=supervised)]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup a child would ignore it, and rightly so
    try:
        stage = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": "src"}, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert stage.stdout.readline() == "on\n"
    stage.send_signal(number)
    assert stage.wait(timeout=10) == code
    assert (stage.stdout.read() == "cleaned\n") == (not supervised)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with stoppable(False):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
