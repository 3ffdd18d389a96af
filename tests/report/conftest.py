"""A folder with all that the page is made of."""

import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from report.making import project


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every stage but `report` seems to have run; tests get a copy."""
    folder = tmp_path_factory.mktemp("project")
    with chdir(folder):
        project()
    return folder


@pytest.fixture(scope="session")
def told_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a decoder and a prior."""
    folder = tmp_path_factory.mktemp("told")
    with chdir(folder):
        project(told=True)
    return folder


@pytest.fixture
def made(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder in which every stage but `report` seems to have run."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def told(told_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder in which a decoder and a prior, too, seem to have been trained, sampled and scored."""
    shutil.copytree(told_template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
