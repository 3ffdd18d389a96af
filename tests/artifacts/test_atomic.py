"""Files and folders appear whole or not at all."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from darkroom.artifacts.atomic import atomic_folder, require_writable, write_bytes, write_json
from darkroom.errors import DarkroomError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_with_all_its_files(tmp_path):
    with atomic_folder(tmp_path / "deep" / "out") as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "deep" / "out").exists()
    assert (tmp_path / "deep" / "out" / "a").read_text() == "1" and names(tmp_path / "deep") == ["out"]


def test_a_folder_replaces_what_was_there(tmp_path):
    for content in ("old", "new"):
        with atomic_folder(tmp_path / "out") as folder:
            (folder / content).write_text("")
    assert names(tmp_path / "out") == ["new"]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_failure_leaves_the_old_folder_and_no_stump(tmp_path, error):
    with atomic_folder(tmp_path / "out") as folder:
        (folder / "old").write_text("")
    with pytest.raises(error), atomic_folder(tmp_path / "out") as folder:
        (folder / "new").write_text("")
        raise error
    assert names(tmp_path / "out") == ["old"] and names(tmp_path) == ["out"]


def test_a_killed_writer_leaves_nothing_under_the_real_name(tmp_path):
    code = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from darkroom.artifacts.atomic import atomic_folder
        with atomic_folder(Path(sys.argv[1]) / "out") as folder:
            (folder / "half").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env={"PYTHONPATH": "src"})
    assert done.returncode == -signal.SIGKILL and not (tmp_path / "out").exists()


def test_a_read_only_link_into_a_cache_is_replaced_and_not_written_through(tmp_path):
    cache = tmp_path / "cache"
    cache.write_text("kept")
    cache.chmod(0o444)
    for link in ("hard", "symbolic"):
        path = tmp_path / link
        os.link(cache, path) if link == "hard" else path.symlink_to(cache)
        write_bytes(path, b"new")
        assert path.read_text() == "new" and not path.is_symlink() and cache.read_text() == "kept"


def test_a_failed_write_leaves_the_old_file_and_no_stump(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old" and names(tmp_path) == ["file"]


def test_json_has_one_form(tmp_path):
    write_json(tmp_path / "a", {"b": 1.5, "a": "é"})
    write_json(tmp_path / "b", {"a": "é", "b": 1.5})
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes() and data.endswith(b"}\n")
    assert json.loads(data) == {"a": "é", "b": 1.5}


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DarkroomError, match=r"cannot write .*file/out.*Make the folder writable"):
        require_writable(tmp_path / "file" / "out")
