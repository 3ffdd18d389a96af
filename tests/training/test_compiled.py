"""Where torch keeps what it has compiled."""

import os
from pathlib import Path

import pytest

from darkroom.training.state import keep_compiled

NAME = "TORCHINDUCTOR_CACHE_DIR"


@pytest.mark.parametrize("folder", ["clone", "a clone with spaces"])
def test_it_is_kept_in_the_clone_where_the_compiler_finds_it(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / folder)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setenv(NAME, "/elsewhere")
    keep_compiled()
    assert os.environ[NAME] == "/elsewhere"  # a person has decided
    monkeypatch.delenv(NAME)
    keep_compiled()
    assert os.environ.get(NAME) == (str(tmp_path / folder / ".darkroom/cache/compiled") if folder == "clone" else None)


def test_a_queued_experiment_finds_what_the_main_checkout_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "")
    monkeypatch.delenv(NAME)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    keep_compiled()
    assert os.environ[NAME] == str(tmp_path / ".darkroom/cache/compiled")


def test_nothing_is_kept_in_a_checkout_that_is_read_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "before")  # what is set is undone
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    keep_compiled()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
