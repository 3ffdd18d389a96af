"""A clone with nothing in it but what `darkroom check` reads."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from darkroom.check.check import check, read_params

ROOT = Path(__file__).parents[3]


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[dict[str, Any]], None]], str]:
    """Return a function that lets another change params.yaml's values, and then checks the clone."""
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    for name in ("src", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "none").touch()
    monkeypatch.chdir(tmp_path)

    def check_with(change: Callable[[dict[str, Any]], None]) -> str:
        values = read_params(ROOT / "params.yaml")
        change(values)
        Path("params.yaml").write_text(yaml.safe_dump(values))
        return check()

    return check_with
