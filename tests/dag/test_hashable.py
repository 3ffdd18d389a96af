"""What DVC cannot hash in a folder of images: found before DVC hangs or fails, all at once, with what to do."""

import ctypes
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from darkroom.dag.hashable import IGNORE, Fault, require_hashable, scan
from darkroom.dag.repo import read_status
from darkroom.errors import DarkroomError

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24


def fifo(folder: Path) -> str:
    os.mkfifo(folder / "x.png")
    return "x.png"


def a_socket(folder: Path) -> str:
    with closing(socket.socket(socket.AF_UNIX)) as made:
        os.chdir(folder)  # the path of a socket is at most 108 bytes
        made.bind("x.png")
    return "x.png"


def link_to_nothing(folder: Path) -> str:
    (folder / "x y.png").symlink_to("nothing")
    return "x y.png"


def link_to_itself(folder: Path) -> str:
    (folder / "[x].png").symlink_to("[x].png")
    return "[x].png"


def link_to_a_pipe(folder: Path) -> str:
    os.mkfifo(folder.parent / "pipe")
    (folder / "x.png").symlink_to(folder.parent / "pipe")
    return "x.png"


def name_of_latin_1(folder: Path) -> str:
    Path(os.fsdecode(os.fsencode(folder) + b"/gr\xf6\xdfe.png")).write_bytes(b"1")
    return "gr\udcf6\udcdfe.png"


def folder_of_latin_1(folder: Path) -> str:
    Path(os.fsdecode(os.fsencode(folder) + b"/B\xe4ume")).mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/B\xe4ume/x.png")).write_bytes(b"1")
    return "B\udce4ume"


def hidden(folder: Path) -> str:
    (folder / ".cache").mkdir()
    (folder / ".cache/x").symlink_to("nothing")
    return ".cache/x"


CASES: dict[Callable[[Path], str], str] = {
    fifo: "a pipe (FIFO)",
    a_socket: "a socket",
    link_to_nothing: "a link to nothing",
    link_to_itself: "a link that leads to itself",
    link_to_a_pipe: "a pipe (FIFO)",
    name_of_latin_1: "its name is not UTF-8",
    folder_of_latin_1: "its name is not UTF-8",
}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a repository of DVC's whose one stage reads `images`."""
    root = tmp_path / "clone"
    (root / "images").mkdir(parents=True)
    (root / "images/a.png").write_bytes(b"an image")
    monkeypatch.chdir(root)
    Repo.init(no_scm=True).close()
    reads("images")
    return root


def reads(path: str) -> None:
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": {"ingest": {"cmd": "x", "deps": [path], "outs": ["out"]}}}))


def said(path: Path) -> str:
    with pytest.raises(DarkroomError) as refused:
        require_hashable({path: "`parts.mess.path`"})
    return str(refused.value)


def status() -> set[str]:
    """Ask DVC what is stale, with our check before, within some seconds."""
    found: list[set[str]] = []

    def ask() -> None:
        found.append(read_status().stale)

    thread = threading.Thread(target=ask, daemon=True)  # a FIFO stops it for ever
    thread.start()
    thread.join(20)
    assert found, "DVC hangs, or failed"
    return found[0]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_it_is_listed_and_dvcs_own_ignore_file_leaves_it_out(
    make: Callable[[Path], str], clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(clone / "images")
    monkeypatch.chdir(clone)
    assert scan(Path("images")) == ([Fault(path, CASES[make])], [])
    with pytest.raises(DarkroomError, match=r"ingest, .*/images: DVC cannot hash 1 of its files"):
        read_status()
    assert "exclude them in .dvcignore" in said(Path("images"))
    Path(IGNORE).write_text("/images/" + re.sub(r"[\[\]\ud800-\udfff]", "?", path) + "\n")
    assert require_hashable({Path("images"): "it"}) == ""
    assert status() == {"ingest"}


def test_all_are_listed_at_once_and_no_byte_reaches_the_terminal(clone: Path) -> None:
    for make in (fifo, link_to_itself, name_of_latin_1, folder_of_latin_1, hidden):
        make(clone / "images")
    message = said(Path("images"))
    assert "5 of its files" in message and message.count("\n  ") == 5
    assert r"gr\xf6\xdfe.png: its name" in message
    message.encode()


def test_a_thousand_are_counted(clone: Path) -> None:
    for number in range(1000):
        (clone / f"images/{number}.png").symlink_to("nothing")
    message = said(Path("images"))
    assert "1,000 of its files" in message and "and 800 more" in message
    assert message.count("\n") < 210


def test_outside_of_the_repository_a_link_into_it_helps(clone: Path, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    link_to_nothing(pictures)
    assert f"`ln -s {pictures} pictures`" in said(pictures)
    (clone / "pictures").symlink_to(pictures)
    Path(IGNORE).write_text("/pictures/?*\n")
    reads("pictures")
    assert status() == {"ingest"}


def test_an_ignore_file_inside_is_refused(clone: Path) -> None:
    (clone / "images" / IGNORE).write_text("x")
    assert "reads no patterns" in said(Path("images"))


def test_links_to_folders_are_a_hint_since_dvc_does_not_follow_them(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (clone / "images/again").symlink_to(".")  # what it leads to is hashed where it lies
    assert require_hashable({Path("images"): "it"}) == ""
    (clone / "images/more").symlink_to(tmp_path / "more")
    hint = require_hashable({Path("images"): "`parts.mess.path`"})
    assert "links to folders elsewhere: 1, the first more." in hint and "DVC does not see" in hint


def test_what_lacks_permission_is_listed(clone: Path) -> None:
    (clone / "images/x.png").write_bytes(b"1")
    (clone / "images/x.png").chmod(0)

    def without_override() -> None:  # root may read everything, unless it gives that up
        if os.geteuid() == 0:
            libc = ctypes.CDLL(None)
            libc.prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)
            libc.prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH)

    program = "from pathlib import Path; from darkroom.dag.hashable import scan; print(scan(Path('images')))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        preexec_fn=without_override,
    )
    assert "x.png" in done.stdout and "no permission to read it" in done.stdout, done.stderr


def test_a_file_and_nothing(clone: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "table.csv")
    assert scan(tmp_path / "table.csv") == ([Fault("", "a pipe (FIFO)")], [])
    assert scan(clone / "images/a.png") == ([], []) == scan(clone / "not here")
    assert "table.csv" in said(tmp_path / "table.csv")
