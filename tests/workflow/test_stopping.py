"""SIGTERM to Snakemake reaches the trainings that it has started, and nothing else."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow"))
from stopping import is_training

ROOT = Path(__file__).parents[2]
# Snakemake's own handler is set after ours has begun to listen, and stays.
ABOVE = """
import signal, subprocess, sys
from stopping import pass_on_sigterm
pass_on_sigterm(True, False)
signal.signal(signal.SIGTERM, lambda number, frame: print("heard", flush=True))
shell = "python -c 'import time; time.sleep(60)' -m darkroom {} & echo $!; wait"
for stage in ("train_generator", "sample_generator"):
    subprocess.Popen(["sh", "-c", shell.format(stage)])
signal.pause()
while True:
    signal.pause()
"""


def test_a_training_is_told_by_its_command():
    assert is_training(["python", "-m", "darkroom", "train_generator"])
    assert is_training(["python", "-u", "-m", "darkroom", "train_tokenizer"])
    assert is_training(["python", "-m", "darkroom", "train_generator", "item"])
    assert not is_training(["python", "-m", "darkroom", "sample_generator"])
    assert not is_training(["sh", "-c", "python -m darkroom train_generator"])
    assert not is_training(["dvc", "repro", "--single-item", "train_generator"])
    assert not is_training([])


def test_trainings_are_told_and_other_stages_are_left_to_end():
    path = os.pathsep.join([str(ROOT / "workflow"), str(ROOT / "src")])
    environment = os.environ | {"PYTHONPATH": path, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    above = subprocess.Popen([sys.executable, "-c", ABOVE], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        stages = [psutil.Process(int(above.stdout.readline())) for _ in range(2)]
        deadline = time.monotonic() + 10
        by_name: dict[str, psutil.Process] = {}
        while by_name.keys() != {
            "train_generator",
            "sample_generator",
        }:  # a child shows its parent's command until it has begun
            by_name = {(process.cmdline() or [""])[-1]: process for process in stages}
            assert time.monotonic() < deadline, list(by_name)
        above.terminate()
        assert above.stdout.readline() == "heard\n"
        by_name["train_generator"].wait(timeout=10)
        assert by_name["sample_generator"].is_running() and above.poll() is None
    finally:
        for process in psutil.Process(above.pid).children(recursive=True):
            process.kill()
        above.kill()
        above.communicate()
