"""Files that DVC cannot hash do not stop `darkroom init`: they are left out, and listed."""

import os
from pathlib import Path

import pytest
from dvc.repo import Repo

from darkroom.cli import main
from darkroom.dag.hashable import unhashable
from darkroom.params.stage import read_yaml

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


def test_a_name_that_is_taken_and_what_must_be_mended(messy, quick, capsys):
    LINK.mkdir(parents=True)
    assert main(["init", str(messy)]) != 0
    assert f"{LINK}, a link, and that leads elsewhere" in capsys.readouterr().err
    (messy / ".dvcignore").touch()
    assert main(["init", str(messy)]) != 0
    assert "DVC reads no patterns inside of a folder that it hashes" in capsys.readouterr().err
