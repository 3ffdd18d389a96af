"""What is left of the DAG as a stage begins, where `darkroom init` has measured it."""

from pathlib import Path

import pytest

from darkroom.dag.history import expected_left, write_expected


def test_it_is_known_for_the_params_that_it_was_said_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected_left("train_generator") is None
    Path("params.yaml").write_text("a: 1\n")
    Path(".darkroom").mkdir()
    write_expected("a: 1\n", {"train_generator": 59.6})
    assert expected_left("train_generator") == 60 and expected_left("report") is None
    Path("params.yaml").write_text("a: 2\n")
    assert expected_left("train_generator") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"params": 1, "left": 2}', "\xff"])
def test_a_damaged_file_says_nothing(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("a: 1\n")
    Path(".darkroom").mkdir()
    Path(".darkroom/expected.json").write_bytes(text.encode("latin-1"))
    assert expected_left("report") is None
