"""Files that DVC cannot hash do not stop `darkroom init`: they are left out, and listed."""

import os
import signal
from pathlib import Path

import pytest
from dvc.repo import Repo

from darkroom.cli import main
from darkroom.dag.hashable import unhashable
from darkroom.params.stage import read_yaml
from darkroom.tools.init import command

LINK = Path("data/links/pictures")


@pytest.fixture
def messy(clone: Path, pictures) -> Path:
    """A folder elsewhere with images and with three files that DVC cannot hash."""
    Repo.init(no_scm=True).close()
    root = pictures("pictures", [f"{number}.png" for number in range(40)])
    os.mkfifo(root / "pipe.png")
    os.mkfifo(root / "0.txt")
    (root / "gone.png").symlink_to("nowhere")
    return root


def path_of() -> str:
    (part,) = read_yaml(Path("params.yaml"))["parts"].values()
    return part["path"]


def test_a_folder_elsewhere_is_read_through_a_link(messy, quick, capsys):
    for _ in range(2):  # the second time both are there
        assert main(["init", str(messy)]) == 0
        assert path_of() == str(LINK) and LINK.resolve() == messy and not unhashable(LINK)
    said = capsys.readouterr().out
    assert (
        "cannot hash 3 files" in said and "pipe.png (a pipe (FIFO))" in said and "gone.png (a link to nothing)" in said
    )
    assert f"{LINK} is a link to {messy}" in said and "42 images" in said
    assert Path(".dvcignore").read_text().count(f"/{LINK}/") == 3  # a line for each


def test_a_folder_of_the_clone_needs_no_link(messy, quick, capsys):
    messy.rename("data/raw")
    assert main(["init", "data/raw"]) == 0
    assert path_of() == "data/raw" and not unhashable(Path("data/raw")) and not LINK.parent.exists()


@pytest.mark.parametrize("arguments", [["--dry-run"], ["--text"]], ids=["dry", "refused"])
def test_nothing_stays_where_nothing_was_written(messy, quick, capsys, arguments):
    before = Path(".dvcignore").read_bytes()
    assert main(["init", str(messy), *arguments]) == (arguments == ["--text"])
    assert Path(".dvcignore").read_bytes() == before and not LINK.parent.exists()


def test_a_link_of_an_earlier_time_stays_and_a_name_that_is_taken_gets_a_number(messy, quick, pictures):
    assert main(["init", str(messy)]) == 0
    kept = Path(".dvcignore").read_bytes()
    assert main(["init", str(messy), "--dry-run"]) == 0
    assert LINK.resolve() == messy and Path(".dvcignore").read_bytes() == kept
    other = messy.rename(messy.parent / "moved")
    again = pictures("pictures", [f"{number}.png" for number in range(40)])
    os.mkfifo(again / "pipe.png")
    assert main(["init", str(again)]) == 0 and path_of() == str(LINK)  # the link leads there again
    LINK.unlink()
    LINK.symlink_to(other)
    assert main(["init", str(again)]) == 0 and path_of() == f"{LINK}-2"


def test_a_process_that_is_asked_to_end_leaves_nothing(messy, quick, monkeypatch):
    before = Path(".dvcignore").read_bytes()
    monkeypatch.setattr(command, "look", lambda subject: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        main(["init", str(messy)])
    assert Path(".dvcignore").read_bytes() == before and not LINK.parent.exists()


def test_what_must_be_mended_is_said(messy, quick, capsys):
    (messy / ".dvcignore").touch()
    assert main(["init", str(messy)]) != 0
    assert "DVC reads no patterns inside of a folder that it hashes" in capsys.readouterr().err
    (messy / ".dvcignore").unlink()
    Path("data/links").touch()
    assert main(["init", str(messy)]) != 0
    assert "data/links cannot be written" in capsys.readouterr().err
