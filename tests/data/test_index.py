"""The index: equal rows give equal bytes; a reader reads what it is asked for, when it is asked."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.index import IMAGES, LATENTS, NAME, Index, IndexWriter

SIZES = {"one": [3, 2], "two": [4], "none": []}


def row(folder: str, number: int) -> dict[str, Any]:
    return {
        "key": f"{folder}-{number}",
        "offset": 512 * number,
        "size": 7 + number,
        "sha256": bytes([number]) * 32,
        "width": 6,
        "label": None if number == 1 else str(number % 2),
        "left out": 1,
    }


def write(folder: Path, name: str) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    writer = IndexWriter(folder, IMAGES)
    first = 0
    for size in SIZES[name]:
        writer.add([row(name, first + at) for at in range(size)])
        first += size
    return {"shards": [{"images": size} for size in SIZES[name]], "index_sha256": writer.close()}


@pytest.fixture
def folders(tmp_path: Path) -> dict[Path, dict[str, Any]]:
    return {tmp_path / name: write(tmp_path / name, name) for name in SIZES}


ROWS = [row("one", number) for number in range(5)] + [row("two", number) for number in range(4)]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The columns that each read of a file asked for."""
    asked: list[list[str]] = []
    real = pq.ParquetFile.read

    def spy(self: pq.ParquetFile, columns: list[str], **options: Any) -> Any:
        asked.append(list(columns))
        return real(self, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read", spy)
    return asked


def test_columns_are_those_that_were_written_folder_after_folder(folders: dict[Path, dict[str, Any]]) -> None:
    index = Index(folders)
    assert index.texts("key") == [each["key"] for each in ROWS]
    assert index.texts("label") == [each["label"] for each in ROWS]
    assert index.numbers("offset").tolist() == [each["offset"] for each in ROWS]
    assert [each.tobytes() for each in index.digests("sha256")] == [each["sha256"] for each in ROWS]
    assert index.some("key", [8, 0, 5]) == ["two-3", "one-0", "two-0"]
    assert index.rows(["key", "size"], 4, 2) == [{"key": "one-4", "size": 11}, {"key": "two-0", "size": 7}]


def test_opening_reads_no_column_and_a_column_is_read_once(
    folders: dict[Path, dict[str, Any]], read: list[list[str]]
) -> None:
    index = Index(folders)
    assert not read
    index.column("label")
    assert read == [["label"]] * 3
    index.texts("label"), index.some("label", [3]), index.rows(["label"], 0, 2)
    assert len(read) == 3
    index.load("offset", "label", "size")  # one pass for what is missing
    assert read[3:] == [["offset", "size"]] * 3
    index.numbers("offset")
    assert len(read) == 6


def test_what_the_caller_keeps_is_not_kept_twice(folders: dict[Path, dict[str, Any]]) -> None:
    index = Index(folders)
    index.numbers("offset"), index.digests("sha256")
    assert not index._columns


def test_a_pickled_index_reads_anew(folders: dict[Path, dict[str, Any]], read: list[list[str]]) -> None:
    index = Index(folders)
    index.column("key")
    copy = pickle.loads(pickle.dumps(index))
    assert not copy._columns and len(read) == 3
    assert copy.texts("key") == index.texts("key")


def test_no_row_is_an_index_too(tmp_path: Path) -> None:
    index = Index({tmp_path / "none": write(tmp_path / "none", "none")})
    assert index.texts("key") == [] and index.digests("sha256").shape == (0, 32)
    assert index.numbers("offset").dtype == np.int64


def test_hashes_may_be_missing(tmp_path: Path) -> None:
    """Latents without mirror images have none of those."""
    writer = IndexWriter(tmp_path, LATENTS)
    writer.add([{"key": "a", "sha256": b"x" * 32}, {"key": "b", "sha256": b"y" * 32}])
    index = Index({tmp_path: {"shards": [{"images": 2}], "index_sha256": writer.close()}})
    assert index.digests("sha256")[1].tobytes() == b"y" * 32
    assert index.digests("sha256_mirror").shape == (2, 32)


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a", "one"), write(tmp_path / "b", "one")
    assert one == two
    assert (tmp_path / "a" / NAME).read_bytes() == (tmp_path / "b" / NAME).read_bytes()


def test_a_shard_is_a_row_group(folders: dict[Path, dict[str, Any]]) -> None:
    metadata = pq.read_metadata(next(iter(folders)) / NAME)
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [3, 2]


def test_another_file_or_count_is_refused_by_name(folders: dict[Path, dict[str, Any]]) -> None:
    first, metadata = next(iter(folders.items()))
    with pytest.raises(ArtifactError, match=rf"{first / NAME} has 5 rows in 2 shards, but the manifest says 6 in 2"):
        Index({first: {**metadata, "shards": [{"images": 3}, {"images": 3}]}})
    (first / NAME).write_bytes((first / NAME).read_bytes()[:-1] + b"?")
    with pytest.raises(ArtifactError, match=rf"{first / NAME} is corrupted"):
        Index(folders)
    (first / NAME).unlink()
    with pytest.raises(ArtifactError, match=rf"{first / NAME} is missing"):
        Index(folders)
