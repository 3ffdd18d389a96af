"""What stands around a stage's body: threads, device, log, terminal."""

import contextlib
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import psutil
import pytest

from darkroom import runner
from darkroom.environment import choose_device, set_threads
from darkroom.errors import DarkroomError
from darkroom.params.run import Run
from darkroom.runner import run_id


def test_threads_are_set_before_numpy_and_torch_whatever_an_engine_says():
    code = (
        "import os; from darkroom.environment import set_threads; import sys; set_threads(1);"
        "assert 'numpy' not in sys.modules and 'torch' not in sys.modules;"
        "import torch; from darkroom.device import set_up_device; set_up_device(1, 'cpu');"
        "print(torch.get_num_threads())"
    )
    environment = os.environ | {"PYTHONPATH": "src", "OMP_NUM_THREADS": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize("chosen", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_threads_that_wait_leave_the_core_soon_unless_a_person_decides(chosen, monkeypatch):
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    for name in names:
        monkeypatch.setenv(name, "before")  # what the test sets is undone
        monkeypatch.delenv(name)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    set_threads(2)
    found = {name: os.environ[name] for name in names if name in os.environ}
    assert found == (chosen or {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"})


TRAIN = """
import sys
from darkroom.environment import set_threads
set_threads(2)
import torch
from darkroom.device import set_up_device
set_up_device(2, "cpu")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.SiLU(), torch.nn.Flatten(), torch.nn.LazyLinear(32))
x, optimizer = torch.randn(64, 3, 16, 16), None
for _ in range(5):
    loss = model(x).square().mean()
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 1e-2)
    optimizer.zero_grad(), loss.backward(), optimizer.step()
sys.stdout.buffer.write(b"".join(value.detach().numpy().tobytes() for value in model.parameters()))
"""


@pytest.mark.slow
def test_how_threads_wait_changes_no_bit():
    weights = set()
    for policy in ({}, {"OMP_WAIT_POLICY": "PASSIVE"}, {"GOMP_SPINCOUNT": "100000"}):
        environment = {"PYTHONPATH": "src", "PATH": "", **policy}
        done = subprocess.run([sys.executable, "-c", TRAIN], env=environment, capture_output=True, check=True)
        weights.add(done.stdout)
    assert len(weights) == 1 and len(weights.pop()) > 10_000


def test_device_is_what_libraries_will_see(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "ACCELERATE_USE_CPU", "CUBLAS_WORKSPACE_CONFIG", "DARKROOM_DEVICE"):
        monkeypatch.setenv(name, "before")
    for seen, device, chosen in [("", "cuda:3", "3"), ("4,6", "cuda:1", "6"), ("4,6", "cuda:2", "")]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
        monkeypatch.delenv("DARKROOM_DEVICE")
        choose_device(device)
        choose_device(device)  # as a process does that another started
        assert os.environ["CUDA_VISIBLE_DEVICES"] == chosen
    choose_device("cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and os.environ["ACCELERATE_USE_CPU"] == "true"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder in which `run_stage` finds everything valid; its body is the test's."""
    (tmp_path / "dvc.lock").write_text("stages: {}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "_own_checkout", lambda: None)
    monkeypatch.setattr(runner, "check", lambda **_: "")
    monkeypatch.setattr(
        runner, "stage_params", lambda stage, item: {"report": {}, "run": {"device": "auto", "cache_gb": 20}}
    )
    monkeypatch.setattr(runner, "validate", lambda model, values: types.SimpleNamespace(run=Run()))
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


def test_all_stages_of_one_engine_have_one_run(tmp_path, monkeypatch):
    """Of DVC its process; Snakemake says it to its jobs."""
    monkeypatch.delenv("DARKROOM_RUN", raising=False)
    stage = f"{sys.executable} -c 'from darkroom.runner import run_id; print(run_id())'"
    engine = tmp_path / "dvc"
    engine.write_text(f'#!/bin/sh\nsh -c "{stage}"\nsh -c "{stage}"\n')
    engine.chmod(0o755)
    runs = [subprocess.run([engine], capture_output=True, text=True, check=True).stdout.split("\n")[:2] for _ in "ab"]
    assert runs[0][0] == runs[0][1] != runs[1][0] == runs[1][1]
    monkeypatch.setenv("DARKROOM_RUN", "7 1")
    assert run_id() == "7 1"


def test_a_body_that_fails_has_no_end(project):
    def body(params):
        raise DarkroomError("no")

    with pytest.raises(DarkroomError):
        project(body)("report", None)
    assert history() == ["start"]
    assert Path("logs/report.log").read_text() == "error: no\n"


def test_a_full_disk_is_one_sentence_and_other_faults_keep_their_traceback(project):
    def full(params):
        raise OSError(28, "No space left on device", "models/x")

    def other(params):
        raise OSError(5, "Input/output error")

    with pytest.raises(DarkroomError, match=r"the disk is full \(models/x: No space left on device\): free some"):
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

    with pytest.raises(DarkroomError, match=r"`run\.device` is cuda:1, but torch finds"):
        set_up_device(1, "cuda:1")


@pytest.fixture
def training(project, monkeypatch):
    """A function that runs a training whose section asks for some processes; what it would start is recorded."""
    started = []

    def give(count, device="cpu", accelerate=None):
        values = {"train_generator": {"training": {"processes": count}}, "run": {"device": device, "cache_gb": 20}}
        run = types.SimpleNamespace(device=device, accelerate=accelerate, cache_gb=20)
        monkeypatch.setattr(runner, "stage_params", lambda stage, item: values)
        monkeypatch.setattr(runner, "validate", lambda model, values: types.SimpleNamespace(run=run))
        monkeypatch.setattr(runner, "launch", lambda *metadata: started.append(metadata))
        body = types.SimpleNamespace(run=lambda params: started.append("here"))
        monkeypatch.setitem(sys.modules, "darkroom.stages.train_generator", body)
        runner.run_stage("train_generator", None)
        return started

    for name in ("RANK", "WORLD_SIZE", "DARKROOM_SUPERVISOR", "CUDA_VISIBLE_DEVICES", "ACCELERATE_USE_CPU"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return give


def test_a_training_runs_here_or_in_the_processes_that_params_yaml_names(training):
    assert training(1) == ["here"]
    assert training(2)[1:] == [(["train_generator"], 2, None)]
    assert training(1, accelerate="fsdp.yaml")[2:] == [(["train_generator"], 1, "fsdp.yaml")]
    assert history() == ["start", "end"] * 3, "the supervisor keeps it"


def test_sampling_runs_in_the_processes_that_params_yaml_names(training, monkeypatch):
    assert training(1) == ["here"]  # the fixture's patches
    values = {"sample_generator": {"common": {"processes": 3}}, "run": {"device": "cpu", "cache_gb": 20}}
    started = []
    monkeypatch.setattr(runner, "stage_params", lambda stage, item: values)
    monkeypatch.setattr(runner, "launch", lambda *metadata: started.append(metadata))
    run = types.SimpleNamespace(device="cpu", accelerate="fsdp.yaml", cache_gb=20)
    monkeypatch.setattr(runner, "validate", lambda model, values: types.SimpleNamespace(run=run))
    monkeypatch.setitem(sys.modules, "darkroom.stages.sample_generator", types.SimpleNamespace(run=None))
    runner.run_stage("sample_generator", None)
    assert started == [(["sample_generator"], 3, None)], "accelerate's file is of trainings"


def test_one_device_is_not_shared(training):
    with pytest.raises(DarkroomError, match=r"`run\.device` is cuda:0, which 2 processes cannot share"):
        training(2, device="cuda:0")
    assert not Path("logs").exists()


def test_a_rank_that_torchrun_started_starts_no_others(training, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert training(1, accelerate="fsdp.yaml") == ["here"] and history() == ["start", "end"]
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(DarkroomError, match=r"started with 3 processes, but params\.yaml sets 1: change `processes`"):
        training(1)


RANK = """
import sys, types
from darkroom import runner
from darkroom.errors import DarkroomError
values = {"train_generator": {"training": {"processes": 2}}, "run": {"device": "cpu", "cache_gb": 20}}
params = types.SimpleNamespace(run=types.SimpleNamespace(device="cpu", accelerate=None, cache_gb=20))
runner._own_checkout, runner.check = lambda: None, lambda **_: None
runner.stage_params, runner.validate, runner.take_device = lambda *a: values, lambda *a: params, lambda device: None
def body(params):
    print("hello")
    print("warning", file=sys.stderr)
    if sys.argv[1] == "fails":
        raise DarkroomError("no")
sys.modules["darkroom.stages.train_generator"] = types.SimpleNamespace(run=body)
runner.run_stage("train_generator", None)
"""


@pytest.mark.parametrize(("number", "story"), [(0, "ends"), (1, "ends"), (0, "fails"), (1, "fails")])
def test_a_rank_speaks_where_it_should_and_leaves_the_history_to_its_supervisor(tmp_path, number, story):
    """Rank 0 on the terminal and in the stage's log, which it does not begin anew; others in a log of their own."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/train_generator.log").write_text("before\n")
    ours = {"RANK": str(number), "WORLD_SIZE": "2", "DARKROOM_SUPERVISOR": str(os.getpid()), "DARKROOM_STATUS": "."}
    environment = os.environ | ours | {"PYTHONPATH": str(Path("src").resolve())}
    words = [sys.executable, "-c", RANK, story]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == (story == "fails")
    whole, own = ((tmp_path / f"logs/{name}") for name in ("train_generator.log", "train_generator-rank1.log"))
    if number == 0:
        assert done.stdout == "[train_generator] hello\n" and done.stderr == "[train_generator] warning\n"
        assert whole.read_text() == "before\nhello\nwarning\n" and not own.exists()
    else:
        assert done.stdout == done.stderr == "" and whole.read_text() == "before\n"
        assert sorted(own.read_text().splitlines()) == sorted(["hello", "warning", *["error: no"] * (story == "fails")])
    assert (tmp_path / str(number)).exists() == (story == "fails")
    assert not (tmp_path / "logs/runs.jsonl").exists()


@pytest.mark.parametrize("asked", [False, True])
def test_who_may_not_read_the_processes_above_is_still_told_what_dvc_lost(monkeypatch, asked):
    def denied():
        raise psutil.AccessDenied

    above = [types.SimpleNamespace(cmdline=denied)]  # somebody else's, as on macOS
    above += [types.SimpleNamespace(cmdline=lambda: ["dvc", "repro", "--no-commit"])] * asked
    monkeypatch.setattr(runner.psutil, "Process", lambda: types.SimpleNamespace(parents=lambda: above))
    monkeypatch.setattr(runner, "declared", lambda stage, item, kinds: ["data/catalog"])
    monkeypatch.setattr(runner, "lost_of", lambda deps: {"catalog": deps})
    monkeypatch.setenv("DVC_STAGE", "report")
    with contextlib.nullcontext() if asked else pytest.raises(DarkroomError, match="dvc commit catalog"):
        runner._require_cached("report", None)


def test_a_device_without_a_number_is_not_for_several_processes_either():
    assert runner._processes("train_clip", {"training": {"processes": 1}}, "mps", None) == 1
    with pytest.raises(DarkroomError, match=r"`run\.device` is mps, which 2 processes cannot share"):
        runner._processes("train_clip", {"training": {"processes": 2}}, "mps", None)
