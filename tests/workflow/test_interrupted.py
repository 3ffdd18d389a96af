"""The marks that Snakemake itself writes are read back, and only those of what is up to date go."""

import sys
from pathlib import Path

import pytest
from snakemake.persistence.file import FilePersistence

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow"))
from interrupted import MARKS, clear, output

PATHS = [
    "models/generator",
    "metrics/generator.json",
    "data/shards/größer",
    f"data/shards/{'a' * 240}",
    f"data/{'b/c' * 120}",
]


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FilePersistence:
    monkeypatch.chdir(tmp_path)
    found = FilePersistence(nolock=True, dag=None, path=tmp_path / ".snakemake")
    for path in PATHS:
        found._mark_incomplete(path, None)
    return found


def test_a_mark_names_its_output(marked: FilePersistence) -> None:
    assert sorted(str(output(mark)) for mark in MARKS.rglob("*") if mark.is_file()) == sorted(PATHS)


@pytest.mark.parametrize("fresh", [PATHS[:1], PATHS[1:]])
def test_what_is_up_to_date_is_not_run_again(marked: FilePersistence, fresh: list[str]) -> None:
    (MARKS / "migration_underway").touch()  # of Snakemake's, and no mark
    clear(fresh)
    marked._clear_cache()
    assert marked._filter_incomplete_keys(PATHS) == set(PATHS) - set(fresh)
    assert (MARKS / "migration_underway").is_file()


def test_a_folder_without_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clear(PATHS)
