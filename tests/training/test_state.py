"""The state's folder: one for each work, locked, and gone when the result is recorded."""

import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from darkroom.dag.fingerprint.following import WHOLE
from darkroom.dag.fingerprint.stages import roots
from darkroom.errors import DarkroomError
from darkroom.params.stage import stage_params
from darkroom.training import state
from darkroom.training.state import (
    CODE,
    FINISHED,
    Inputs,
    changed_since,
    dvc_md5,
    fingerprint,
    identity,
    open_state,
    read_entry,
    root,
    sweep,
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one stage, whose input and code are files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    stage = {"cmd": "x", "params": ["train_generator"], "deps": ["code", "input"], "outs": ["out"]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train_generator": stage}}))
    write_params(tmp_path, depth=4, workers=0)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model.py").write_text("1")
    (tmp_path / "input").write_text("1")
    return tmp_path


def write_params(folder, depth, workers):
    (folder / "params.yaml").write_text(
        yaml.safe_dump({"train_generator": {"depth": depth}, "run": {"workers": workers}})
    )


def key():
    with open_state("train_generator") as folder:
        return folder


def test_work_is_parameters_inputs_and_code_and_not_how_it_runs(project):
    first = key()
    write_params(project, depth=4, workers=2)
    assert key() == first
    write_params(project, depth=5, workers=0)
    assert key() != first
    write_params(project, depth=4, workers=0)
    (project / "input").write_text("2")
    assert key() != first
    (project / "input").write_text("1")
    (project / "code" / "model.py").write_text("2")
    assert key() != first


def test_what_changes_while_a_stage_runs_is_named_unless_dvc_ignores_it(project):
    (project / "code/inner").mkdir()
    (project / "code/inner/a.py").write_text("1")
    inputs = Inputs("train_generator", None, stage_params("train_generator"))
    write_params(project, depth=4, workers=2)
    (project / "code/__pycache__").mkdir()
    (project / "code/__pycache__/model.pyc").write_text("1")
    inputs.require_same()
    (project / "code/inner/a.py").write_text("22")
    with pytest.raises(DarkroomError, match=r"train_generator changed while it ran: code has changed\."):
        inputs.require_same()


def test_a_second_training_of_the_same_work_is_refused(project):
    with (
        open_state("train_generator"),
        pytest.raises(DarkroomError, match="already being trained"),
        open_state("train_generator"),
    ):
        pass


def test_a_training_that_fails_is_not_finished(project):
    with pytest.raises(RuntimeError), open_state("train_generator") as folder:
        raise RuntimeError
    assert not (folder / FINISHED).exists()


def record(content="1"):
    """Write dvc.lock and DVC's cache as if DVC had recorded an output with one file."""
    listed = f'[{{"md5": "{hashlib.md5(content.encode()).hexdigest()}", "relpath": "weights"}}]'
    md5 = hashlib.md5(listed.encode()).hexdigest() + ".dir"
    entry = {"cmd": "x", "outs": [{"path": "out", "md5": md5}]}
    Path("dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": {"train_generator": entry}}))
    cached = Path(".dvc/cache/files/md5", md5[:2], md5[2:])
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.write_text(listed)
    later = time.time() + 5
    os.utime("dvc.lock", (later, later))


def trained():
    with open_state("train_generator") as folder:
        Path("out").mkdir()
        Path("out/weights").write_text("1")
        return folder


def test_a_state_goes_when_its_very_output_is_recorded_and_not_before(project):
    """An older result of the same stage, with the same parameters, keeps it: its inputs were others."""
    folder = trained()
    sweep()
    assert folder.is_dir()
    record("an older result")
    sweep()
    assert folder.is_dir()
    record()
    sweep()
    assert not folder.exists()


def test_an_output_is_hashed_as_dvc_hashes_it(tmp_path, monkeypatch):
    """Files in folders, names that sort otherwise as paths, and what .dvcignore names."""
    for name in ("a/b", "a.b", "Z", "a/c/d", ".snakemake_timestamp", "a/.b.tmp-1"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text(name)
    shutil.copy(Path(__file__).parents[2] / ".dvcignore", tmp_path)
    monkeypatch.chdir(tmp_path)
    with Repo.init(no_scm=True) as repo:
        stage = repo.stage.create(name="made", cmd="true", outs_no_cache=["out"])
        stage.save()
        assert dvc_md5(tmp_path / "out") == stage.outs[0].hash_info.value


def test_a_reader_that_outlives_its_training_holds_no_lock(project):
    """A DataLoader's worker is a fork: what it inherits would keep the lock for seconds after a kill."""
    here, there = os.pipe()
    with open_state("train_generator"):
        child = os.fork()
        if not child:
            os.write(there, b".")
            time.sleep(30)
            os._exit(0)
        assert os.read(here, 1) == b"."
    try:
        with open_state("train_generator"):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_state_in_use_stays(project):
    folder = trained()
    record()
    with open_state("train_generator"):
        sweep()
        assert folder.is_dir()


def test_a_queued_experiment_keeps_its_state_in_the_main_checkout(project, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("main")
    monkeypatch.setenv("DVC_ROOT", str(elsewhere))
    assert key().is_relative_to(elsewhere) and root() == elsewhere / ".darkroom" / "state"


def test_identity_holds_no_run(project):
    assert "run" not in identity("train_generator")["params"]


@pytest.mark.parametrize("text", ["", "stages:", "stages: {train_generator: ", "stages: {train_generator: 3}", "- 1"])
def test_a_record_that_is_being_written_stops_nobody(project, text):
    folder = key()
    Path("dvc.lock").write_text(text)
    os.utime("dvc.lock", (time.time() + 5, time.time() + 5))
    sweep()
    assert folder.is_dir()


def test_another_number_of_processes_continues_the_same_work(project):
    def key_with(processes):
        values = {"train_generator": {"training": {"processes": processes, "images": 8}}, "run": {}}
        (project / "params.yaml").write_text(yaml.safe_dump(values))
        return key()

    assert key_with(1) == key_with(2)
    assert identity("train_generator")["params"]["train_generator"]["training"]["processes"] == 2, (
        "as dvc.lock records it"
    )


def test_of_several_processes_the_first_holds_the_lock_for_all(project, monkeypatch):
    with open_state("train_generator") as first:
        monkeypatch.setenv("RANK", "1")
        with open_state("train_generator") as other:
            assert other == first
        assert not (other / FINISHED).exists()


def test_an_edit_since_the_code_was_hashed_is_named(project, monkeypatch):
    """Words and layout are no edit; what counts is the time of any file of the source, and then its tree."""
    monkeypatch.setattr(state, "SOURCE", project / "src")
    source, body = project / "src/darkroom/stages", "def run(params):\n    return 1\n"
    for module, name in roots("train_generator"):
        file = project / "src" / f"{module.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as opened:
            opened.write(body.replace("run", name.replace(WHOLE, "whole")))
    stage = {"cmd": "x", "params": ["train_generator"], "deps": ["build/code/train_generator.json"], "outs": ["out"]}
    (project / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train_generator": stage}}))
    assert changed_since("train_generator", None) == [], "nobody hashed it"
    (project / "build/code").mkdir(parents=True)
    (project / "build/code/train_generator.json").write_text(json.dumps(fingerprint("train_generator")))
    later = time.time() + 5
    for text, found in [
        (f'"""Words."""\n{body}# more\n', []),
        (body.replace("1", "2"), ["darkroom.stages.train_generator: run changed"]),
    ]:
        (source / "train_generator.py").write_text(text)
        os.utime(source / "train_generator.py", (later, later))
        assert changed_since("train_generator", None) == found


@pytest.fixture
def hashed(project, monkeypatch):
    """The fingerprint that the stage `code` has written for `train_generator` since the only source file was edited."""
    monkeypatch.setattr(state, "SOURCE", project / "src")
    stage = {"cmd": "x", "params": ["train_generator"], "deps": ["build/code/train_generator.json"], "outs": ["out"]}
    (project / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train_generator": stage}}))
    code = {"cmd": "x", "params": {"params.yaml": {"train_generator.depth": 4}}}
    (project / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": {"code": code}}))
    for folder in ("build/code", "src"):
        (project / folder).mkdir(parents=True)
    fingerprint = {"darkroom.stages.train_generator": {"run": "0" * 64}}
    (project / "object").write_text(json.dumps(fingerprint))
    (project / "src/module.py").touch()
    for name, seconds in (("object", 9), ("src/module.py", 5)):  # as in DVC's cache, from before the edit
        os.utime(project / name, (earlier := time.time() - seconds, earlier))
    (project / "build/code/train_generator.json").symlink_to(project / "object")
    return fingerprint


def test_what_python_compiles_is_no_edit(project, hashed, monkeypatch):
    """In a fresh clone the .pyc files are newer than the fingerprints; computing those again takes seconds."""
    monkeypatch.setattr(state, "fingerprints", lambda *_: pytest.fail("the fingerprint was computed again"))
    compiled = project / "src/__pycache__/module.cpython-311.pyc"
    compiled.parent.mkdir(parents=True)
    compiled.touch()
    os.utime(compiled, (later := time.time() + 5, later))
    assert changed_since("train_generator", None) == []
    with open_state("train_generator") as folder:
        assert read_entry(folder, CODE) == hashed


@pytest.mark.parametrize("changed", ["a source file", "a kind", "no record of the stage"])
def test_a_fingerprint_that_may_be_of_other_code_is_computed_again(project, hashed, monkeypatch, changed):
    now = {"train_generator": {"darkroom.stages.train_generator": {"run": "1" * 64}}}
    monkeypatch.setattr(state, "fingerprints", lambda *_: now)
    if changed == "a source file":
        os.utime(project / "src/module.py", (later := time.time() + 5, later))
    elif changed == "a kind":
        write_params(project, depth=5, workers=0)
    else:
        (project / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": {}}))
    assert fingerprint("train_generator") == now["train_generator"] != hashed
