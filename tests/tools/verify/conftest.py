"""Projects to look into."""

import os
import shutil
from pathlib import Path

import pytest

from tools.verify.making import project


def _project(folder: Path, **parts: tuple[int, int]) -> Path:
    before = Path.cwd()
    os.chdir(folder)
    try:
        project(**parts)
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two parts with all that belongs to them."""
    return _project(tmp_path_factory.mktemp("template"), first=(0, 30), second=(40, 52))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small part, for tests that leave it as it was."""
    return _project(tmp_path_factory.mktemp("small"), only=(0, 9))


@pytest.fixture
def made(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a copy of the two parts."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
