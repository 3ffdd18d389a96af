"""What is out of date, read while an engine runs: without its locks, and without a byte written in the checkout."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.repo import Repo

from darkroom.artifacts.atomic import json_bytes
from darkroom.dag import repo as module
from darkroom.dag.records import BUSY
from darkroom.dag.repo import RUNNING, observe
from darkroom.tools.why import why

STAGES = """
stages:
  code: {cmd: mkdir -p build/code && cp before.json build/code/train_generator.json, deps: [src], outs: [build/code]}
  catalog: {cmd: cp source d, deps: [source], outs: [d]}
  train_generator: {cmd: cp d b, deps: [d, build/code/train_generator.json], params: [depth], outs: [b]}
  report: {cmd: cp b c, deps: [b], outs: [c]}
"""
BEFORE, NOW = {"darkroom.a": {"loss": "1"}}, {"darkroom.a": {"loss": "2"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of DVC in which everything is up to date."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "src").mkdir()
    for name, text in {"dvc.yaml": STAGES, "params.yaml": "depth: 1\n", "source": "x", "src/a.py": "1"}.items():
        (folder / name).write_text(text)
    (folder / "before.json").write_bytes(json_bytes(BEFORE))
    dvc = Path(sys.executable).with_name("dvc")
    subprocess.run([dvc, "init", "--no-scm", "--quiet"], cwd=folder, check=True)
    subprocess.run([dvc, "repro", "--quiet"], cwd=folder, check=True)
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a copy of it."""
    shutil.copytree(made, tmp_path / "project", symlinks=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(module, "fingerprints", lambda *_: {"train_generator": NOW})
    return tmp_path / "project"


def files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def hold(path: str) -> None:
    """Note that this process makes an output, as DVC does of a stage that runs."""
    BUSY.write_text(json.dumps({"write": {str(Path(path).absolute()): {"pid": os.getpid(), "cmd": "x"}}, "read": {}}))


def test_a_running_stage_is_said_to_run_and_nothing_waits_or_is_written(project: Path) -> None:
    hold("b")
    Path("b").unlink()  # as before each run
    with Repo() as repo, repo.lock:  # an engine takes it for moments
        before = files(project)
        assert why("train_generator") == "train_generator is running."
        assert why("report") == "report is stale:\n  it waits for train_generator, which is running"
        assert why("catalog") == "catalog is up to date."
        assert files(project) == before
    BUSY.write_text(json.dumps({"write": {str(Path("b").absolute()): {"pid": 2**22 + 1, "cmd": "gone"}}, "read": {}}))
    assert why("train_generator").startswith("train_generator is stale:\n  its output b is missing")


def test_changed_code_is_compared_in_memory(project: Path) -> None:
    before = files(project)
    assert not observe().changed
    Path("src/a.py").write_text("2")
    before = files(project)
    assert why("train_generator") == "train_generator is stale:\n  darkroom.a: loss changed"
    assert why("report").startswith("report is stale:\n  it waits for train_generator, which is stale:")
    assert files(project) == before


def test_what_is_replaced_while_it_is_read_has_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dvc.output import Output

    def gone(out: Output) -> dict[str, str]:
        raise FileNotFoundError(str(out))

    monkeypatch.setattr(Output, "status", gone)
    assert observe().changed["catalog"][-1] == {"changed outs": {"d": "modified"}}
    hold("d")
    assert observe().changed["catalog"] == [RUNNING]
