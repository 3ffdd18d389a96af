"""A folder with the files that `darkroom check` and a stage read, and no data."""

import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from darkroom.check.check import check, read_params
from helpers import DIGITS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with dvc.yaml, params.yaml and the source the working folder."""
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, tmp_path)
    for name in ("src", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    """Read the values of the preset once."""
    return read_params(DIGITS)


@pytest.fixture
def checked(clone: Path, digits: dict[str, Any]) -> Callable[[Callable[[dict[str, Any]], None]], str]:
    """Return a function that lets another change params.yaml's values, and then checks the clone."""
    (clone / "data").mkdir()
    (clone / "data" / "none").touch()

    def check_with(change: Callable[[dict[str, Any]], None]) -> str:
        values = deepcopy(digits)
        change(values)
        Path("params.yaml").write_text(yaml.safe_dump(values))
        return check()

    return check_with
