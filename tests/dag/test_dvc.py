"""DVC as `darkroom.dag.dvc` mends it, on stages of a few shell commands."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.repo import Repo

ROOT = Path(__file__).parents[2]
STAGES = """
stages:
  one:
    cmd: >-
      echo one >>ran; %s; cat params.yaml input >one
    params: [value]
    deps: [input]
    outs: [one]
  two:
    cmd: echo two >>ran; cat one >two
    deps: [one]
    outs: [two]
"""
DVC = (sys.executable, "-m", "darkroom.dag.dvc")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
    names = ("SITE_CACHE_DIR", "GLOBAL_CONFIG_DIR", "SYSTEM_CONFIG_DIR")
    return inherited | {"PYTHONPATH": str(ROOT / "src")} | {f"DVC_{name}": str(tmp_path / name) for name in names}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A repository of DVC in the working folder; call it with the shell command inside the first stage."""
    root = tmp_path / "repository"
    root.mkdir()
    monkeypatch.chdir(root)
    Repo.init(no_scm=True).close()
    Path("params.yaml").write_text("value: 1\n")
    Path("input").write_text("a\n")
    return lambda command: Path("dvc.yaml").write_text(STAGES % command) and None


@pytest.fixture
def dvc(write, environment: dict[str, str]) -> Callable[..., subprocess.Popen[str]]:
    """Starts the mended DVC."""

    def start(*words: str, **variables: str) -> subprocess.Popen[str]:
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([*DVC, *words], env=environment | variables, **output)

    return start


def ended(run: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = run.communicate(timeout=120)
    return run.returncode, output


def bodies() -> list[str]:
    return Path("ran").read_text().split() if Path("ran").exists() else []


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


EDITS = {"parameter": "echo 'value: 2' >params.yaml", "input": "echo b >input"}


@pytest.mark.parametrize(("edit", "force"), [("parameter", []), ("input", ["--force"])], ids=["stale", "forced"])
def test_what_was_edited_during_the_run_is_not_recorded(write, dvc, edit: str, force: list[str]) -> None:
    """The edit stands in the command itself, so it comes after all that DVC reads before, and before all after."""
    write(f"cat params.yaml input >given; {EDITS[edit]}")
    code, output = ended(dvc("repro", "one", *force))
    assert code != 0 and f"{'params.yaml' if edit == 'parameter' else 'input'} changed while one ran" in output
    assert not Path("dvc.lock").exists() and not list(Path(".dvc/cache/runs").rglob("*"))
    write("true")
    code, output = ended(dvc("repro", "one"))
    assert code == 0, output
    assert bodies() == ["one", "one"]  # not restored
    assert Path("one").read_text() == Path("params.yaml").read_text() + Path("input").read_text()


def test_an_empty_folder_of_the_run_cache_means_not_cached(write, dvc) -> None:
    write("true")
    assert ended(dvc("repro"))[0] == 0
    for entry in [path for path in Path(".dvc/cache/runs").rglob("*") if path.is_file()]:
        entry.unlink()  # what a SIGKILL between the folder and the file leaves
    Path("dvc.lock").unlink()
    code, output = ended(dvc("repro"))
    assert code == 0, output
    assert bodies() == ["one", "two"] * 2


def test_a_truncated_rwlock_stops_no_stage(write, dvc) -> None:
    write("while test ! -e go; do sleep 0.05; done")
    run = dvc("repro")
    wait_until(lambda: bodies() == ["one"])
    Path(".dvc/tmp/rwlock").write_text('{"write": {"/models/gene')
    Path("go").touch()
    code, output = ended(run)
    assert code == 0, output
    assert set(yaml.safe_load(Path("dvc.lock").read_text())["stages"]) == {"one", "two"}
    assert json.loads(Path(".dvc/tmp/rwlock").read_text()) == {"read": {}, "write": {}}


@pytest.mark.parametrize(("signals", "written"), [(0, True), (1, True), (2, False)])
@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_ctrl_c_while_rwlock_is_taken_waits_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: Any, signals: int, written: bool
) -> None:
    """DVC's own code keeps the lock then, and waits for itself forever when it removes its entries."""
    from dvc.lock import Lock

    from darkroom.dag.rwlock import edit_rwlock

    class Interrupted(Lock):
        def lock(self) -> None:
            super().lock()
            for _ in range(signals):
                signal.raise_signal(signal.SIGINT)

    def write() -> None:
        with edit_rwlock(str(tmp_path)) as lock:
            lock["write"]["out"] = {"pid": 1, "cmd": "a"}

    monkeypatch.setattr("darkroom.dag.rwlock.make_lock", lambda path, **_: Interrupted(path))
    before = signal.signal(signal.SIGINT, handler)
    try:
        if signals and handler is signal.default_int_handler:
            with pytest.raises(KeyboardInterrupt):
                write()
        else:
            written = not write()
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "rwlock").exists() == written


@pytest.mark.parametrize("variables", [{}, {"DARKROOM_RUN": "other"}], ids=["engine", "job of an engine"])
def test_a_second_one_waits_and_runs_nothing_again(write, dvc, variables: dict[str, str]) -> None:
    """An engine waits for its turn; a job of an engine that has the turn waits for the files."""
    write("while test ! -e go; do sleep 0.05; done")
    first = dvc("repro")
    wait_until(lambda: bodies() == ["one"])
    other = dvc("repro", "--single-item", "one", **variables)
    assert other.stdout is not None and any("waits" in line for line in other.stdout)
    assert other.poll() is None
    Path("go").touch()
    assert ended(first)[0] == 0
    code, output = ended(other)
    assert code == 0, output
    assert bodies() == ["one", "two"]


def test_several_started_together_run_each_stage_once(write, dvc) -> None:
    write("true")
    for code, output in map(ended, [dvc("repro") for _ in range(4)]):
        assert code == 0, output
    assert bodies() == ["one", "two"]


def test_a_signal_truncates_no_dvc_lock(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill it while it writes a file of this name, where a plain DVC leaves an empty file."""
    monkeypatch.chdir(tmp_path)
    before = b"schema: '2.0'\nstages:\n  one:\n    cmd: 'true'\n"
    Path("dvc.lock").write_bytes(before)
    code = """
        import os, signal
        from darkroom.dag import dvc
        from ruamel.yaml import YAML
        dump = YAML.dump
        def killed(self, data, stream=None, **options):
            dump(self, data, stream, **options)
            os.kill(os.getpid(), signal.SIGKILL)
        YAML.dump = killed
        dvc.install()
        from dvc.utils.serialize import modify_yaml
        with modify_yaml("dvc.lock") as data:
            data["stages"].clear()
    """
    done = subprocess.run([sys.executable, "-c", "\n".join(line[8:] for line in code.splitlines())], env=environment)
    assert done.returncode == -9 and Path("dvc.lock").read_bytes() == before


def test_whether_an_engine_runs_is_known_by_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from darkroom.dag import records

    monkeypatch.chdir(tmp_path)
    assert not records.engine_runs(), "no engine ever ran here"
    records.TURN.parent.mkdir(parents=True)
    with records.TURN.open("w") as held:
        assert not records.engine_runs()
        fcntl.flock(held, fcntl.LOCK_EX)
        assert records.engine_runs()
    assert not records.engine_runs(), "it has ended"


def test_processes_of_other_machines_count_as_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from darkroom.dag import dvc
    from darkroom.dag.records import BUSY, HOLDERS

    monkeypatch.chdir(tmp_path)
    HOLDERS.mkdir(parents=True)
    runs, ended = (HOLDERS / f"elsewhere-7-{number * 8}" for number in ("a", "b"))
    commands = {
        "runs": f"dvc repro #{runs.name}",
        "ended": f"dvc repro #{ended.name}",
        "plain": "dvc commit -m 'fix #3",
    }
    pids = {"runs": 7, "ended": 8, "plain": os.getppid()}
    BUSY.write_text(json.dumps({"write": {out: {"pid": pids[out], "cmd": commands[out]} for out in pids}, "read": {}}))
    ended.touch()
    with runs.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert dvc._others() == sorted(["7 on elsewhere", str(os.getppid())])
    assert list(json.loads(BUSY.read_text())["write"]) == ["runs", "plain"] and not ended.exists()
