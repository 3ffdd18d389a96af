"""A dvc.lock that was cut short or deleted comes back, and nobody gets one of another commit."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from dvc.dvcfile import Lockfile
from dvc.repo import Repo
from dvc.utils.serialize import dumps_yaml
from dvc.utils.serialize._yaml import parse_yaml_for_update
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from darkroom.cli import main
from darkroom.dag.lock_file import BROKEN, RUNS, damage, mend
from darkroom.dag.records import BUSY, LOCK, CutShortError, entries, recorded, replace_entries
from darkroom.errors import DarkroomError

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "dvc.lock").read_text()
SMALL = "schema: '2.0'\nstages:\n  a:\n    cmd: b\n    outs:\n    - path: c\n      md5: d\n"


def git(*words: str) -> str:
    fingerprint = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    return subprocess.run(["git", *fingerprint, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository of git and DVC with one commit, and no dvc.lock yet."""
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet", "--initial-branch", "main")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").touch()
    (tmp_path / "params.yaml").touch()
    (tmp_path / ".dvc/.gitignore").write_text("/tmp\n/cache\n")
    (tmp_path / ".gitignore").write_text("/.darkroom\n")
    commit("begun")
    return tmp_path


def commit(message: str) -> None:
    git("add", "--all")
    git("commit", "--quiet", "--message", message)


def test_what_dvc_wrote_is_whole():
    assert "train_generator" in entries(TEXT)
    assert list(entries(SMALL)) == ["a"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(1, len(TEXT) - 1) | st.sampled_from([at + 1 for at, sign in enumerate(TEXT[:-1]) if sign == "\n"])
)
def test_whatever_dvc_refuses_is_found_cut_short(clone, at: int) -> None:
    """Cut anywhere: what passes here passes there, and what ends in the middle of a line never passes."""
    LOCK.write_text(TEXT[:at])
    try:
        entries(TEXT[:at])
    except CutShortError:
        return
    assert TEXT[at - 1] == "\n"
    with Repo() as repo:
        Lockfile(repo, str(LOCK)).load()


@pytest.mark.parametrize(
    "left",
    [
        "",
        "schema: '2.0'\nstages:\n",
        "schema: '2.0'\nstages:\n  a:\n",
        "schema: '2.0'\nstages:\n  a:\n    cmd: b\n    deps:\n",
        "schema: '2.0'\nstages:\n  a:\n    cmd: b\n    outs:\n    - hash: md5\n",
        "schema: '2.0'\nstages:\n  a:\n    cmd: b\n    params:\n      params.yaml:\n",
        "stages: {}\n",
        SMALL[:-1],
    ],
)
def test_an_entry_that_is_not_complete_is_found(left: str) -> None:
    with pytest.raises(CutShortError):
        entries(left)


@pytest.mark.parametrize("left", ["", SMALL[:-1]])
def test_that_of_the_index_comes_back_byte_for_byte(clone, left: str) -> None:
    LOCK.write_text(SMALL)
    commit("results")
    LOCK.write_text(left)
    assert recorded() == {} and damage()
    message = mend()
    assert "was truncated" in message and str(BROKEN) in message and "from git's index" in message
    assert LOCK.read_text() == SMALL and BROKEN.read_text() == left
    assert mend() == "" and damage() is None
    LOCK.unlink()
    assert "is missing" in mend() and LOCK.read_text() == SMALL


def test_nobody_gets_one_that_belongs_elsewhere(clone) -> None:
    assert mend() == "" and not LOCK.exists()  # a new project
    LOCK.write_text("")
    assert "DVC starts without" in mend() and not LOCK.exists()
    LOCK.write_text(SMALL)
    commit("results")
    git("rm", "--quiet", "--cached", str(LOCK))
    LOCK.unlink()  # on purpose
    assert mend() == "" and not LOCK.exists()


def test_a_merge_is_for_the_person(clone, capsys, monkeypatch) -> None:
    merged = SMALL.replace("      md5: d\n", "<<<<<<< HEAD\n      md5: d\n=======\n      md5: e\n>>>>>>> other\n")
    LOCK.write_text(merged)
    monkeypatch.setattr("darkroom.tools.check.check_params", lambda *options: "valid")
    assert main(["check"]) == 1
    assert "dvc.lock, line 7: this is a Git merge conflict marker" in capsys.readouterr().err
    with pytest.raises(DarkroomError, match=r"dvc\.lock, line 7"):
        mend()
    assert LOCK.read_text() == merged


def test_check_says_what_it_put_back(clone, capsys, monkeypatch) -> None:
    LOCK.write_text(SMALL)
    monkeypatch.setattr("darkroom.tools.check.check_params", lambda *options: "valid")
    monkeypatch.setattr("darkroom.tools.check.check_sources", lambda: "")
    commit("results")
    LOCK.write_text(SMALL[:20])
    assert main(["check"]) == 0
    assert "dvc.lock was truncated" in capsys.readouterr().out and LOCK.read_text() == SMALL


def test_what_dvc_notes_of_its_work_is_mended_too(clone) -> None:
    BUSY.parent.mkdir()
    BUSY.write_text('{"write": {"models/generator')
    assert mend() == "" and json.loads(BUSY.read_text()) == {"read": {}, "write": {}}


def test_an_empty_folder_of_the_run_cache_is_removed(clone) -> None:
    """DVC leaves it where a SIGKILL comes at the wrong moment, and a plain `dvc` then fails at this stage for ever."""
    (RUNS / "ab" / "abcd").mkdir(parents=True)
    (RUNS / "cd" / "cdef").mkdir(parents=True)
    (RUNS / "cd" / "cdef" / "entry").touch()
    mend()
    assert [str(path.relative_to(RUNS)) for path in RUNS.glob("*/*")] == ["cd/cdef"]


def test_a_killed_dvc_that_nobody_waited_for_holds_nothing(clone) -> None:
    with subprocess.Popen(["true"]) as killed:
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays in the list of processes
        held = {number: {"pid": number, "cmd": "dvc repro"} for number in (killed.pid, os.getpid())}
        dead, alive = held.values()
        BUSY.parent.mkdir()
        BUSY.write_text(json.dumps({"write": {"a": dead, "b": alive}, "read": {"c": [dead], "d": [dead, alive]}}))
        assert mend() == ""
    assert json.loads(BUSY.read_text()) == {"write": {"b": alive}, "read": {"d": [alive]}}


def test_a_dvc_that_is_writing_is_waited_for(clone) -> None:
    """While DVC holds its lock, an empty dvc.lock is one that is being written."""
    LOCK.write_text(SMALL)
    written = SMALL.replace("md5: d", "md5: e")
    code = """
        import time
        from pathlib import Path
        from dvc.repo import Repo
        with Repo() as repo, repo.lock:
            Path("dvc.lock").write_text("")
            print("empty", flush=True)
            time.sleep(2)
            Path("dvc.lock").write_text(Path("written").read_text())
    """
    Path("written").write_text(written)
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as dvc:
        assert dvc.stdout is not None and dvc.stdout.readline() == b"empty\n"
        assert mend() == ""
    assert LOCK.read_text() == written and not BROKEN.exists()


FEW = TEXT[: TEXT.index("  train_extractor")]  # to parse all of it takes DVC two seconds
VALUES = st.floats(allow_nan=False) | st.booleans() | st.integers() | st.text(max_size=120) | st.none()
NAMES = st.sampled_from(list(entries(FEW))) | st.text("abc@-_. #:'", min_size=1, max_size=8) | st.just("a" * 130)


@settings(max_examples=60, deadline=None)
@given(
    name=NAMES, command=st.text(max_size=200), params=st.dictionaries(st.text(max_size=9), VALUES | st.lists(VALUES))
)
def test_one_entry_is_written_as_dvc_writes_the_whole_file(name: str, command: str, params: dict[str, object]) -> None:
    entry = {"cmd": command, "params": {"params.yaml": params}, "outs": [{"path": "a", "md5": "1e5"}]}
    data = parse_yaml_for_update(FEW, "dvc.lock")
    data["stages"][name] = entry
    written = dumps_yaml(data)
    new = dumps_yaml({"stages": {name: entry}}).partition("\n")[2]
    assert replace_entries(FEW, {name: new}) in (written, None)
    if name in entries(FEW):
        assert replace_entries(FEW, {name: new}) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        FEW[:-9],
        FEW + "datasets: []\n",
        FEW.replace("  catalog:\n", "  # the images\n  catalog:\n"),
        "schema: '2.0'\nstages:\n  catalog:\n    cmd: &id001 [a]\n  b:\n    cmd: *id001\n",
        FEW.replace("  catalog:\n", "  'catalog':\n"),
        "a: 1\n" + FEW,
    ],
)
def test_dvc_writes_a_file_that_is_not_in_its_form(text: str) -> None:
    assert (
        replace_entries(text, {"catalog": "  catalog:\n    cmd: &id001 [x]\n", "new": "  new:\n    cmd: x\n"}) is None
    )
