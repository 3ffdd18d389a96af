"""A folder with all that the page is made of."""

from pathlib import Path

import pytest

from report.making import project


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder in which every stage but `report` seems to have run."""
    monkeypatch.chdir(tmp_path)
    project()
    return tmp_path
