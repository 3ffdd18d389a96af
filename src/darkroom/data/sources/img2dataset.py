"""Reads img2dataset's files beside a shard: failed downloads, and the samples that must be in the tar.

R. Beaumont, img2dataset, 2021: `00000.parquet` has a row for each address, `00000_stats.json` the counts.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from darkroom.data.sources.downloads import error_category
from darkroom.errors import DarkroomError

_COLUMNS = ["key", "status", "error_message"]


@dataclass(frozen=True)
class Log:
    """The records of a shard.

    name: the file with the records.
    failed: the reason of each failed download, by key.
    stored: the keys in the tar; None: the file does not list them.
    count: the number of samples in the tar.
    """

    name: str
    failed: dict[str, str]
    stored: frozenset[str] | None
    count: int


def read_log(stem: str, read: Callable[[str], bytes | None]) -> Log | None:
    """Return img2dataset's records of the shard `stem`.tar; None: there are none.

    Args:
        stem: the name of the shard without its extension.
        read: returns the content of a file beside the shard, None where there is no such file.

    Raises:
        DarkroomError: a file of records cannot be read.
    """
    name = f"{stem}.parquet"
    if (data := read(name)) is not None:
        try:
            table = pq.ParquetFile(pa.BufferReader(data))
            if {"key", "status"} <= set(table.schema_arrow.names):
                present = [column for column in _COLUMNS if column in table.schema_arrow.names]
                return _of_rows(name, table.read(columns=present).to_pylist())
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(name, error) from error
    name = f"{stem}_stats.json"
    if (data := read(name)) is None:
        return None
    try:
        stats = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, error) from error
    count = stats.get("successes") if isinstance(stats, dict) else None
    return Log(name, {}, None, count) if isinstance(count, int) else None


def _of_rows(name: str, rows: list[dict[str, str | None]]) -> Log:
    stored = frozenset(str(row["key"]) for row in rows if row["status"] == "success")
    failed = {
        str(row["key"]): f"{row['status']}: {error_category(row.get('error_message') or '')}"
        for row in rows
        if row["status"] != "success"
    }
    return Log(name, failed, stored, len(stored))


def _unreadable(name: str, error: Exception) -> DarkroomError:
    return DarkroomError(
        f"{name} beside the shard cannot be read ({error}): restore it, or remove it to go without what img2dataset "
        "says of failed downloads."
    )
