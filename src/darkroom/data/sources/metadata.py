"""Read metadata tables on the images of a folder, in the convention of the Hub's ImageFolder.

`metadata.jsonl`, `metadata.csv` or `metadata.parquet` lies in the folder of the images or above it. Its column
`file_name` names a file, relative to the folder of the table; other columns describe the file.
https://huggingface.co/docs/datasets/image_dataset#imagefolder

As spreadsheets write them, tables may also be in UTF-16, and use semicolons or tabs instead of commas.
"""

import codecs
import csv
import json
import math
import os
import posixpath
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from darkroom.data.damage import Finding, Reason
from darkroom.data.keys import encoded, shown
from darkroom.data.sources.captions import LONGEST, answer_of
from darkroom.data.sources.walk import TABLES, FolderListing, UnreadableSample
from darkroom.errors import DarkroomError

FILE_NAME = "file_name"
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}

# (row, values of the requested columns); a row is the line number in a text file, or the row number in a parquet file.
TableRows = Iterator[tuple[int, list[Any]]]


def read_table(
    path: Path, name: str, requested: Sequence[str], columns: set[str]
) -> Iterator[tuple[int, list[str | None]]]:
    """Yield for each row its number and the texts in the columns `requested`, None for a missing one.

    Numbers become texts, whole numbers without a decimal point; null and NaN become None. Bytes that are not UTF-8
    become lone surrogates. A conversation becomes its first answer.

    `name` is that of the table in messages; its columns are added to `columns`.

    Raises:
        DarkroomError: the table cannot be read, lacks a column, or holds values other than texts and numbers; the
            message names the table and its columns.
    """
    reader = _READERS[path.name.rpartition(".")[2]]
    own: set[str] = set()
    try:
        for number, values in reader(path, requested, own):
            yield number, [_text(value, name, number, column) for value, column in zip(values, requested, strict=True)]
    except (OSError, ValueError, csv.Error) as error:  # errors of JSON and parquet are ValueErrors
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
        raise DarkroomError(f"the table {name} cannot be read: {reason}. Repair or remove it.") from error
    columns |= own
    for column in requested:
        if column not in own:
            available = ", ".join(f"`{shown(each)}`" for each in sorted(own)) or "none"
            raise DarkroomError(
                f"the table {name} has no column `{column}`, only {available}. `file_name` names the files; "
                "`folder.label_column` and `folder.caption_column` in params.yaml name the others."
            )


def _opened(path: Path) -> TextIO:
    """Return an open text in UTF-8, or in UTF-16: with its mark, or with a NUL among the first two bytes."""
    with path.open("rb") as file:
        first = file.read(2)
    if first in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    elif b"\0" in first:
        encoding = "utf-16-be" if first[:1] == b"\0" else "utf-16-le"
    else:
        encoding = "utf-8-sig"
    return path.open(encoding=encoding, errors="surrogateescape", newline="")


def _jsonl(path: Path, requested: Sequence[str], columns: set[str]) -> TableRows:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} is not JSON ({error})") from None
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is not an object")
            columns.update(row)
            yield number, [row.get(column) for column in requested]


def _csv(path: Path, requested: Sequence[str], columns: set[str]) -> TableRows:
    with _opened(path) as file:
        csv.field_size_limit(LONGEST)  # a setting of the process; its default, 128 KiB, is too short for some captions
        first = file.readline()
        separator = max(_SEPARATORS, key=lambda each: _fits(first, each))
        reader = csv.reader(chain([first], file), delimiter=separator, strict=True)
        header = next(reader, [])
        columns.update(header)
        places = [header.index(column) if column in header else None for column in requested]
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(
                    f"line {reader.line_num} has {len(row)} fields, but the first line has {len(header)}; "
                    f'put texts with a {_SEPARATORS[separator]} in "quotes"'
                )
            yield reader.line_num, [None if place is None or not row[place] else row[place] for place in places]


def _fits(line: str, separator: str) -> tuple[bool, int]:
    """Return whether a separator gives the first line a column `file_name`, and how many columns it gives."""
    header = next(csv.reader([line], delimiter=separator), [])
    return FILE_NAME in header, len(header)


def _parquet(path: Path, requested: Sequence[str], columns: set[str]) -> TableRows:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        columns.update(file.schema_arrow.names)
        present = [column for column in requested if column in columns]
        batches = file.iter_batches(columns=present, batch_size=10_000)
        for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), start=1):
            yield number, [row.get(column) for column in requested]


_READERS: dict[str, Callable[[Path, Sequence[str], set[str]], TableRows]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
}


def _text(value: Any, name: str, number: int, column: str) -> str | None:
    value = answer_of(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, (int, Decimal)):
        return str(value)
    raise DarkroomError(
        f"the table {name}, row {number}: `{column}` is {type(value).__name__}, but must be a text or a number."
    )


class Metadata(NamedTuple):
    """The content of the tables of a folder.

    annotations: label, caption and group by the path of the file.
    faults: rows without a file of their own.
    """

    annotations: dict[str, tuple[str | None, ...]]
    faults: list[UnreadableSample]


def path_in(root: Path, path: str) -> Path:
    """Return a path below a folder; file names are converted as bytes, so that no locale changes them."""
    return Path(os.fsdecode(os.fsencode(root) + b"/" + encoded(path)))


def read_metadata(root: Path, files: FolderListing, requested: Mapping[str, str]) -> Metadata:
    """Return the content of the tables of a folder.

    `requested` has the columns of "label", "caption" and "group", each if it is needed.

    Raises:
        DarkroomError: there is no table, there are two in one folder, or a table cannot be read, lacks a column, or
            names a file outside its folder; the message names the table.
    """
    if not files.tables:
        keys = (f"`{'ingest' if name == 'group' else 'folder'}.{name}`" for name in requested)
        raise DarkroomError(
            f"{' and '.join(keys)} in params.yaml: metadata, but the folder {root} has no table: "
            f"add {', '.join(TABLES[:-1])} or {TABLES[-1]}."
        )
    _require_one_each(files.tables)
    paths = {*files.images, *(fault.path for fault in files.faults)}  # the latter are listed already
    columns = [FILE_NAME, *dict.fromkeys(requested.values())]  # one column may be both
    places = [columns.index(requested[name]) if name in requested else None for name in ("label", "caption", "group")]
    forms: dict[str, str] = {}
    into = Metadata({}, [])
    for table in sorted(files.tables):
        for number, values in read_table(path_in(root, table), shown(table), columns, set()):
            location = f"{shown(table)} row {number}"
            if not values[0]:
                finding = Finding(Reason.MISSING, "the row names no file")
                into.faults.append(UnreadableSample(f"{table}/{number}", location, finding))
                continue
            path = _below(table, values[0], location, paths, forms)
            if path in paths and path not in into.annotations:
                into.annotations[path] = tuple(None if place is None else values[place] for place in places)
            else:
                finding = _refused(root, path, path in paths)
                into.faults.append(UnreadableSample(path, f"{location}: {shown(path)}", finding))
    return into


def _require_one_each(tables: Iterable[str]) -> None:
    folders: dict[str, str] = {}
    for table in sorted(tables):
        first = folders.setdefault(posixpath.dirname(table), table)
        if first != table:
            raise DarkroomError(
                f"the tables {shown(first)} and {shown(table)} are in one folder and may contradict each other: "
                "remove one."
            )


def _below(table: str, file_name: str, location: str, paths: set[str], forms: dict[str, str]) -> str:
    """Return the path of a file that a table names.

    Backslashes separate folders, as on the Hub, unless a file has them in its name. An é may be one character in the
    table and two in the name of the file, as macOS writes it. `forms` is filled when it is first needed.
    """
    for name in (file_name, file_name.replace("\\", "/")):
        path = posixpath.normpath(name)
        if path.startswith(("/", "../")) or path == "..":
            raise DarkroomError(
                f"{location} names the file {shown(file_name)}, which is not in the folder of the table: "
                "use paths inside that folder, relative to it."
            )
        full = posixpath.join(posixpath.dirname(table), path)
        if full in paths:
            return full
    if full.isascii():
        return full
    if not forms:
        forms.update((unicodedata.normalize("NFC", each), each) for each in sorted(paths))
    return forms.get(unicodedata.normalize("NFC", full), full)


def _refused(root: Path, path: str, is_listed: bool) -> Finding:
    if is_listed:
        return Finding(Reason.KEY_TWICE, "an earlier row of a table names this file")
    if "\0" not in path and os.path.lexists(path_in(root, path)):
        return Finding(Reason.NOT_AN_IMAGE, "its name is hidden, or has not the ending of an image")
    return Finding(Reason.MISSING, "the table names this file, and it is not there")
