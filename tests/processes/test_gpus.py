"""Stages take GPUs that no other stage has, whatever engine, checkout or kill is in between."""

import os
import random
import subprocess
import sys
import time

import pytest

from darkroom.errors import DarkroomError
from darkroom.processes import gpus

TRAINING = """
import os, sys, time
from pathlib import Path
from darkroom.processes import gpus
gpus.FOLDER, gpus._OLD, seconds = Path(sys.argv[1]), 2.0, float(sys.argv[3])
gpus.take(int(sys.argv[2]))
names = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
for name in names:
    user = gpus.FOLDER / f"user of {name}"
    state = Path("/proc", user.read_text() if user.exists() else "", "stat")
    if state.parent.name != "proc" and state.exists() and state.read_text().rpartition(") ")[2][0] != "Z":
        print(f"{name} has two users", flush=True)
    user.write_text(str(os.getpid()))
(gpus.FOLDER / f"took {os.getpid()}").write_text(",".join(names))
time.sleep(seconds)
for name in names:
    (gpus.FOLDER / f"user of {name}").write_text("")
"""


@pytest.fixture
def four(tmp_path, monkeypatch):
    """Put an `nvidia-smi` that lists four GPUs on the path, and return the folder of their locks."""
    listed = "".join(f"GPU {number}: NVIDIA H100 (UUID: GPU-{number}abc)\\n" for number in range(4))
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '{listed}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "FOLDER", tmp_path / "gpus")
    yield program
    gpus.release()
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", gpus.LOCKS):
        os.environ.pop(name, None)


def test_none_without_nvidia_smi(monkeypatch):
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    assert gpus.present() == []


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["GPU-0abc", "GPU-1abc", "GPU-2abc", "GPU-3abc"]),
        ("2,0", ["GPU-2abc", "GPU-0abc"]),
        ("", []),
        ("-1", []),
        ("1,7,0", ["GPU-1abc"]),
        ("GPU-3", ["GPU-3abc"]),
    ],
)
def test_visible_devices_are_respected(four, monkeypatch, visible, names):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus.present() == names


def test_a_stage_sees_its_gpus_alone_until_it_ends(four):
    gpus.take(3)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-0abc,GPU-1abc,GPU-2abc"
    del os.environ["CUDA_VISIBLE_DEVICES"]
    gpus.take(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-3abc"
    gpus.release()
    del os.environ["CUDA_VISIBLE_DEVICES"]
    gpus.take(4)


def test_a_rank_keeps_the_gpus_when_its_supervisor_is_gone(four):
    gpus.take(2)
    gpus.share()
    supervisor, ranks = gpus._held[:2], gpus._held[2:]
    for file in supervisor:
        file.close()
    del os.environ["CUDA_VISIBLE_DEVICES"]
    gpus.take(2)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-2abc,GPU-3abc" and len(ranks) == 2


def test_small_stages_share_a_gpu_where_that_is_allowed(four, monkeypatch):
    monkeypatch.setenv(gpus.PER_GPU, "2")
    for taken in ("GPU-0abc,GPU-1abc,GPU-2abc", "GPU-3abc,GPU-0abc,GPU-1abc"):
        gpus.take(3)
        assert os.environ.pop("CUDA_VISIBLE_DEVICES") == taken
    monkeypatch.setenv(gpus.PER_GPU, "none")
    with pytest.raises(DarkroomError, match=gpus.PER_GPU):
        gpus.take(1)


def test_more_than_there_are_is_refused(four):
    with pytest.raises(DarkroomError, match="5 processes need one GPU each, but there are 4"):
        gpus.take(5)


def test_parts_of_a_gpu_count_and_are_not_for_several_processes(four):
    parts = "".join(f"  MIG 1g.10gb Device {part}: (UUID: MIG-{part})\\n" for part in (7, 8))
    four.write_text(f"#!/bin/sh\nprintf 'GPU 0: NVIDIA A100 (UUID: GPU-1)\\n{parts}'\n")
    assert gpus.present() == ["MIG-7", "MIG-8"]
    with pytest.raises(DarkroomError, match="MIG"):
        gpus.take(2)


@pytest.mark.parametrize("rounds", [8, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_trainings_that_are_killed_never_share_a_gpu_and_leave_none_idle(four, rounds):
    """Six at a time, for 1 or 2 of 4 GPUs, killed at random."""
    folder, draws = gpus.FOLDER, random.Random(0)
    folder.mkdir()
    running, left, idle_since = {}, 6 * rounds, None
    while left or running:
        while left and len(running) < 6:
            count = draws.choice((1, 1, 2))
            words = [sys.executable, "-c", TRAINING, str(folder), str(count), str(draws.uniform(0.05, 0.3))]
            running[subprocess.Popen(words, stdout=subprocess.PIPE, text=True)] = count
            left -= 1
        if draws.random() < 0.05:
            draws.choice(list(running)).kill()
        time.sleep(0.02)
        for process in [each for each in running if each.poll() is not None]:
            assert "two users" not in process.stdout.read()
            assert process.returncode in (0, -9)
            process.stdout.close()
            del running[process]
        took = {process for process in running if (folder / f"took {process.pid}").exists()}
        free = 4 - sum(running[process] for process in took)
        if len(running) - len(took) > 2 and free >= 2:  # two may still start
            idle_since = idle_since or time.monotonic()
            assert time.monotonic() - idle_since < 2, "GPUs are idle while stages wait"
        else:
            idle_since = None
