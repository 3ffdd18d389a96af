"""Each fault that is planted is found, and nothing is found where all is well."""

import fcntl
import os
import subprocess
import sys
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dvc.cli import main as dvc

from darkroom import cli
from darkroom.tools.doctor import clone, examine, packages
from darkroom.tools.doctor.packages import note, ok, problem

SOURCE = Path(__file__).resolve().parents[3]


def levels(found):
    return [finding.level for finding in found]


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty folder, with no git above it and no identity."""
    monkeypatch.chdir(tmp_path)
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL", "DIR"):
        monkeypatch.delenv(f"GIT_{name}", raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return tmp_path


# ---------------------------------------------------------------------------------------------------------------------
# Packages


def test_versions_are_compared_with_the_lock(tmp_path, monkeypatch):
    lock = tmp_path / "requirements.lock"
    have = {"one": "1.0", "two": "2.5", "three": "3"}
    monkeypatch.setattr(packages, "installed", have.get)
    lock.write_text('one==1.0\ntwo==2.0  # why\n\nnowhere==1 ; sys_platform == "plan9"\n')
    assert levels(packages.pinned(lock)) == ["note"]
    lock.write_text("one==1.0\nfour==4.0\n")
    (found,) = packages.pinned(lock)
    assert found.level == "fault" and "1 of" in found.text and "four==4.0" in found.text and "make setup" in found.text
    lock.write_text("one==1.0\nthree==3\n")
    assert list(packages.pinned(lock)) == [ok("packages", f"2 of {lock}, all at the pinned version")]
    lock.write_text("".join(f"no{number}==1\n" for number in range(20)))
    found = list(packages.pinned(lock))
    assert levels(found) == ["fault"] and "20 of" in found[0].text and "no7==1, …" in found[0].text
    assert levels(packages.pinned(tmp_path / "none")) == ["fault"]


def test_python_must_be_one_that_is_supported(empty):
    Path("pyproject.toml").write_text('[project]\nrequires-python = ">=3.11,<3.14"\n')
    assert levels(packages.python()) == ["ok"]
    Path("pyproject.toml").write_text('[project]\nrequires-python = ">=3.99"\n')
    (found,) = packages.python()
    assert found.level == "fault" and ">=3.99 is needed" in found.text


def test_torch_and_torchvision_must_be_a_pair(monkeypatch):
    assert levels(packages.torch_pair()) == ["ok"]

    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(packages.importlib, "import_module", broken)
    (found,) = packages.torch_pair()
    assert found.level == "fault" and "nms does not exist" in found.text and "from one index" in found.text


def test_while_stages_run_torch_is_not_loaded(empty, monkeypatch):
    monkeypatch.setattr("darkroom.dag.records.engine_runs", lambda: True)
    for check in ("packages.torch_pair", "clone.devices"):
        monkeypatch.setattr(f"darkroom.tools.doctor.{check}", lambda check=check: pytest.fail(f"{check} was called"))
    assert "devices not checked" in {found.subject: found.text for found in examine.findings()}["torch"]


def test_engines_must_be_on_the_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert levels(packages.engines()) == ["ok", "ok"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert levels(packages.engines()) == ["fault", "fault"]
    for name in ("dvc", "snakemake"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    found = list(packages.engines())
    assert levels(found) == ["note", "note"] and "is not from this environment" in found[0].text


# ---------------------------------------------------------------------------------------------------------------------
# Machine


def test_a_device_that_is_not_there_is_a_fault(empty, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    levels = {"auto": "ok", "cpu": "ok", "cuda": "fault", "cuda:1": "fault", "cuda:one": "fault", "mps": "fault"}
    for device, level in levels.items():
        Path("params.yaml").write_text(f"run:\n  device: {device}\n")
        assert list(clone.devices())[-1].level == level
    Path("params.yaml").unlink()
    assert list(clone.devices())[-1].text == "`run.device` is auto: stages run on cpu"


def test_a_full_disk_is_a_fault_and_a_nearly_full_one_a_note(empty, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(clone, "_cache", lambda: empty / "not/yet")
    for free, level in ((5e8, "fault"), (5e9, "note"), (5e10, "ok")):
        monkeypatch.setattr(clone.shutil, "disk_usage", lambda path, free=free: usage(1e12, 0, free))
        found = list(clone.disk())
        assert [finding.subject for finding in found] == ["disk", "disk of cache", "disk of state"]
        assert levels(found) == [level] * 3 and str(empty) in found[1].text


# ---------------------------------------------------------------------------------------------------------------------
# Clone


def test_code_must_be_of_this_folder(empty, monkeypatch):
    assert levels(clone.code()) == ["fault"]
    monkeypatch.chdir(SOURCE)
    assert levels(clone.code()) == ["ok"]


def test_git_needs_a_clone_and_an_identity(empty, monkeypatch):
    found = list(clone.git())
    assert levels(found) == ["fault"] * 3 and "user.name is not set" in found[1].text
    subprocess.run(["git", "init", "--quiet"], check=True)
    subprocess.run(["git", "config", "user.name", "Ada"], check=True)
    found = list(clone.git())
    assert levels(found) == ["ok", "fault"] and '`git config user.email "…"`' in found[1].text
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
    assert levels(clone.git()) == ["ok"]
    monkeypatch.setenv("PATH", str(empty))
    assert levels(clone.git()) == ["fault"]


def test_parameters_that_are_not_valid_are_a_fault_each(empty):
    assert list(clone.parameters()) == [
        problem("params.yaml", "params.yaml is missing: `git checkout params.yaml` restores it.")
    ]


def test_locks_of_snakemake_are_a_note(empty):
    assert levels(clone.locks()) == ["ok"]
    clone.LOCKS.mkdir(parents=True)
    (clone.LOCKS / "0.input.lock").write_text("")
    (found,) = clone.locks()
    assert found.level == "note" and "snakemake --unlock" in found.text


@pytest.mark.parametrize(("flock", "text"), [(fcntl.flock, "sees the locks"), (lambda *_: None, "do not reach")])
def test_nodes_are_asked_for_the_locks_of_each_other(empty, monkeypatch, flock, text):
    monkeypatch.setattr(clone.fcntl, "flock", flock)
    with ThreadPoolExecutor() as pool:  # of one process, but a lock is of an open file
        found = list(pool.map(lambda number: next(clone.nodes(2, 20)), range(2)))
    assert all(text in each.text for each in found) and not list(clone.HOLDERS.with_name("nodes").iterdir())


def test_a_node_that_stays_alone_says_so(empty):
    folder = clone.HOLDERS.with_name("nodes")
    folder.mkdir(parents=True)
    (folder / "killed").touch()
    os.utime(folder / "killed", (0, 0))
    (found,) = clone.nodes(2, 0.3)
    assert found.level == "fault" and "1 of 2 started" in found.text


def test_a_lock_that_was_cut_short_is_a_fault(empty):
    assert levels(clone.lock_file()) == ["ok"]
    lock = empty / "dvc.lock"
    lock.write_text("schema: '2.0'\nstages:\n  a:\n    cmd: b\n")
    (found,) = clone.lock_file()
    assert found.level == "ok" and "1 stages" in found.text
    lock.write_text("")
    (found,) = clone.lock_file()
    assert found.level == "fault" and "truncated (it is empty): `darkroom check` restores" in found.text
    lock.write_text("schema: '2.0'\n<<<<<<< HEAD\n")
    (found,) = clone.lock_file()
    assert found.level == "fault" and "dvc.lock, line 2: this is a Git merge conflict" in found.text
    assert lock.read_text().endswith("<<<<<<< HEAD\n")  # the doctor looks, and mends nothing


def test_left_over_states_are_told_with_size_and_images(empty):
    assert levels(clone.states()) == ["ok"]
    folder = empty / ".darkroom/state/train_generator-0123456789abcdef"
    for name in ("images-000000000320", "images-000000000640", "damaged-images-000000000960"):
        (folder / name).mkdir(parents=True)
        (folder / name / "modules.safetensors").write_bytes(bytes(1_000_000))
    first, aside = clone.states()
    assert first.level == "note" and "640 images, 3 MB; `dvc repro train_generator` continues it" in first.text
    assert "damaged-images-000000000960: a damaged checkpoint, 1 MB" in aside.text
    (folder / "finished.json").write_text("{}")
    assert "finished" in next(clone.states()).text
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "training is running" in next(clone.states()).text
    assert "finished" in next(clone.states()).text


def test_what_longer_trainings_begin_with_is_told_with_its_size(empty):
    folder = empty / ".darkroom/stable/train_generator-0123456789abcdef/images-000000000640"
    folder.mkdir(parents=True)
    (folder / "modules.safetensors").write_bytes(bytes(2_000_000))
    found, none = clone.states()
    assert found.level == "note" and "2 MB; a longer training starts from it" in found.text and none.level == "ok"


# ---------------------------------------------------------------------------------------------------------------------
# The whole


def test_findings_are_aligned_one_line_each():
    text = examine.lines([ok("a", "x"), note("longer", "y\n  z"), problem("b", "w")])
    assert text == "ok     a       x\nnote   longer  y z\nfault  b       w"


@pytest.mark.parametrize(
    ("found", "code"), [([ok("a", "x"), note("b", "y")], 0), ([ok("a", "x"), problem("b", "y")], 1)]
)
def test_a_fault_is_an_exit_code(monkeypatch, capsys, found, code):
    monkeypatch.setattr(examine, "findings", lambda: iter(found))
    assert cli.main(["doctor"]) == code
    assert capsys.readouterr().out == examine.lines(found) + "\n"


def test_it_survives_a_folder_that_is_nothing(empty):
    text, sound = examine.doctor()
    assert not sound
    subjects = {line.split()[1] for line in text.splitlines() if line.startswith("fault")}
    assert {"packages", "code", "git", "params.yaml"} <= subjects


def test_remotes_whose_objects_dvc_trusts_are_a_note_with_the_command(empty):
    assert levels(clone.remotes()) == ["fault"]
    assert dvc(["init", "-q", "--no-scm"]) == 0
    assert list(clone.remotes()) == [ok("remotes", "no DVC remotes")]
    with Path(".dvc/config").open("a") as config:
        config.write("['remote \"store\"']\nurl = /a\n")
    Path(".dvc/config.local").write_text("['remote \"mine\"']\nurl = /b\n['remote \"store\"']\njobs = 2\n")
    found = list(clone.remotes())
    assert levels(found) == ["note", "note"]
    for finding in found:
        command = finding.text.split("`")[3]
        assert command.startswith("dvc remote modify ") and command.endswith(" verify true")
        assert dvc(command.split()[1:]) == 0
    assert list(clone.remotes()) == [ok("remotes", "store, mine: `dvc pull` compares hashes")]
