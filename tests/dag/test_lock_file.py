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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from darkroom.cli import main
from darkroom.dag.lock_file import BROKEN, BUSY, KEPT, LOCK, CutShortError, damage, entries, keep, mend, recorded
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


@pytest.mark.parametrize("left", ["", SMALL[:40], SMALL[:-1]])
def test_the_last_whole_one_comes_back_byte_for_byte(clone, left: str) -> None:
    LOCK.write_text(SMALL)
    keep()
    LOCK.write_text(left)
    keep()  # by a stage that begins while DVC writes: it must not lose the copy
    assert recorded() == {}
    assert damage()
    said = mend()
    assert "was cut short" in said and str(BROKEN) in said and "last was whole" in said
    assert LOCK.read_text() == SMALL and BROKEN.read_text() == left
    assert mend() == "" and damage() is None


def test_one_that_lacks_stages_replaces_no_copy(clone) -> None:
    """Cut behind a stage it is valid, and the copy would be cut with it; a commit of its own begins anew."""
    LOCK.write_text(TEXT)
    keep()
    cut = TEXT[: TEXT.index("\n  train_tokenizer:\n") + 1]
    LOCK.write_text(cut)
    assert entries(cut).keys() < entries(TEXT).keys()
    keep()
    assert KEPT.read_text().partition("\n")[2] == TEXT
    changed = TEXT.replace("darkroom train_generator\n", "darkroom  train_generator\n")
    LOCK.write_text(changed)
    keep()
    assert KEPT.read_text().partition("\n")[2] == changed != TEXT
    LOCK.write_text(cut)
    commit("fewer")
    keep()
    assert KEPT.read_text().partition("\n")[2] == cut


def test_that_of_the_commit_comes_back_where_no_copy_was_kept(clone) -> None:
    LOCK.write_text(SMALL)
    commit("results")
    LOCK.write_text("")
    assert "as git's index has it" in mend()
    assert LOCK.read_text() == SMALL


def test_one_that_was_deleted_comes_back(clone) -> None:
    LOCK.write_text(SMALL)
    keep()
    LOCK.unlink()  # never committed
    assert "is missing" in mend() and LOCK.read_text() == SMALL
    commit("results")
    LOCK.unlink()
    assert "is missing" in mend() and LOCK.read_text() == SMALL


def test_nobody_gets_one_that_belongs_elsewhere(clone) -> None:
    assert mend() == "" and not LOCK.exists()  # a new project
    git("checkout", "--quiet", "-b", "other")
    LOCK.write_text(SMALL)
    commit("results")
    keep()
    git("checkout", "--quiet", "main")  # which has none
    assert mend() == "" and not LOCK.exists()
    LOCK.write_text("")
    assert "DVC begins without" in mend() and not LOCK.exists()
    git("checkout", "--quiet", "other")
    git("rm", "--quiet", "--cached", str(LOCK))
    LOCK.unlink()  # on purpose
    assert mend() == "" and not LOCK.exists()


def test_a_copy_of_another_commit_gives_way_to_git(clone) -> None:
    LOCK.write_text(SMALL.replace("md5: d", "md5: e"))
    keep()
    LOCK.write_text(SMALL)
    commit("results")
    LOCK.write_text("")
    assert "as git's index has it" in mend() and LOCK.read_text() == SMALL


def test_a_merge_is_for_the_person(clone, capsys, monkeypatch) -> None:
    LOCK.write_text(SMALL)
    keep()
    merged = SMALL.replace("      md5: d\n", "<<<<<<< HEAD\n      md5: d\n=======\n      md5: e\n>>>>>>> other\n")
    LOCK.write_text(merged)
    monkeypatch.setattr("darkroom.check.check.check", lambda: "valid")
    assert main(["check"]) == 1
    assert "dvc.lock, line 7: git left the marker of a merge" in capsys.readouterr().err
    with pytest.raises(DarkroomError, match=r"dvc\.lock, line 7"):
        mend()
    assert LOCK.read_text() == merged


def test_check_says_what_it_put_back(clone, capsys, monkeypatch) -> None:
    LOCK.write_text(SMALL)
    monkeypatch.setattr("darkroom.check.check.check", lambda: "valid")
    monkeypatch.setattr("darkroom.check.check.check_sources", lambda leave_out: "")
    assert main(["check"]) == 0 and KEPT.read_text().endswith(SMALL)
    LOCK.write_text(SMALL[:20])
    assert main(["check"]) == 0
    assert "dvc.lock was cut short" in capsys.readouterr().out and LOCK.read_text() == SMALL


def test_what_dvc_notes_of_its_work_is_mended_too(clone) -> None:
    BUSY.parent.mkdir()
    BUSY.write_text('{"write": {"models/generator')
    assert "was cut short: removed" in mend() and not BUSY.exists()
    BUSY.write_text("{}")
    assert mend() == "" and BUSY.exists()


def test_a_killed_dvc_that_nobody_waited_for_holds_nothing(clone) -> None:
    with subprocess.Popen(["true"]) as killed:
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays in the list of processes
        held = {number: {"pid": str(number), "cmd": "dvc repro"} for number in (killed.pid, os.getpid())}
        dead, alive = held.values()
        BUSY.parent.mkdir()
        BUSY.write_text(json.dumps({"write": {"a": dead, "b": alive}, "read": {"c": [dead], "d": [dead, alive]}}))
        assert mend() == ""
    assert json.loads(BUSY.read_text()) == {"write": {"b": alive}, "read": {"d": [alive]}}


def test_a_dvc_that_is_writing_is_waited_for(clone) -> None:
    """While DVC holds its lock, an empty dvc.lock is one that is being written."""
    LOCK.write_text(SMALL)
    keep()
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
