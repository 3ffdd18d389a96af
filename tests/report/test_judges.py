"""The page judges each training by a score that has words."""

from pathlib import Path

import pytest

from darkroom.report.curves import TITLES, read_training
from darkroom.report.inputs import FURTHER, TRAININGS


@pytest.mark.parametrize("name", [*TRAININGS, *FURTHER, "decoder/base"])
def test_what_judges_a_training_has_words(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "curves" / name).mkdir(parents=True)
    assert read_training(Path("curves") / name).judge in TITLES
