"""Metadata tables on the images of a folder: each row is joined with a file, or listed."""

import os
import posixpath
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from darkroom.data.damage import Finding, Reason
from darkroom.data.keys import encoded, shown
from darkroom.data.sources.table import FILE_NAME, TABLES, read_table
from darkroom.data.sources.walk import Found, UnreadableSample
from darkroom.errors import DarkroomError


@dataclass
class Metadata:
    """The content of the tables of a folder.

    said: label and caption by the path of the file.
    faults: rows without a file of their own.
    columns: the columns of all tables.
    tables, rows: the number of tables, and of their rows.
    """

    said: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    faults: list[UnreadableSample] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    tables: int = 0
    rows: int = 0

    def counts(self) -> dict[str, Any]:
        """Return counts for the manifest."""
        columns = sorted(shown(column) for column in self.columns)
        return {"tables": self.tables, "rows": self.rows, "columns": columns}


def path_in(root: Path, path: str) -> Path:
    """Return a path below a folder; file names are converted as bytes, so that no locale changes them."""
    return Path(os.fsdecode(os.fsencode(root) + b"/" + encoded(path)))


def read_metadata(root: Path, found: Found, wanted: Mapping[str, str]) -> Metadata:
    """Return the content of the tables of a folder.

    Args:
        root: the folder.
        found: the files below the folder.
        wanted: the column of the "label" and of the "caption", each where it is requested.

    Raises:
        DarkroomError: there is no table, there are two in one folder, or a table cannot be read, lacks a column, or
            names a file outside its folder; the message names the table.
    """
    if not found.tables:
        keys = " and ".join(f"`folder.{name}`" for name in wanted)
        raise DarkroomError(
            f"{keys} in params.yaml: metadata, and the folder {root} holds no table: "
            f"put {', '.join(TABLES[:-1])} or {TABLES[-1]} into it."
        )
    _require_one_each(found.tables)
    known = {*found.images, *(fault.path for fault in found.faults)}  # the latter are listed already
    columns = [FILE_NAME, *dict.fromkeys(wanted.values())]  # one column may be both
    places = [columns.index(wanted[name]) if name in wanted else None for name in ("label", "caption")]
    forms: dict[str, str] = {}
    into = Metadata(tables=len(found.tables))
    for table in sorted(found.tables):
        for number, values in read_table(path_in(root, table), shown(table), columns, into.columns):
            into.rows += 1
            where = f"{shown(table)} row {number}"
            if not values[0]:
                into.faults.append(
                    UnreadableSample(f"{table}/{number}", where, Finding(Reason.MISSING, "the row names no file"))
                )
                continue
            path = _below(table, values[0], where, known, forms)
            if path in known and path not in into.said:
                label, caption = (None if place is None else values[place] for place in places)
                into.said[path] = label, caption
            else:
                finding = _refused(root, path, path in known)
                into.faults.append(UnreadableSample(path, f"{where}: {shown(path)}", finding))
    return into


def _require_one_each(tables: Iterable[str]) -> None:
    folders: dict[str, str] = {}
    for table in sorted(tables):
        other = folders.setdefault(posixpath.dirname(table), table)
        if other != table:
            raise DarkroomError(
                f"the tables {shown(other)} and {shown(table)} lie in one folder, and may contradict each other: "
                "remove one."
            )


def _below(table: str, file_name: str, where: str, known: set[str], forms: dict[str, str]) -> str:
    """Return the path of a file that a table names.

    Backslashes separate folders, as on the Hub, unless a file has them in its name. An é may be one character in the
    table and two in the name of the file, as macOS writes it. `forms` is filled when it is first needed.
    """
    for name in (file_name, file_name.replace("\\", "/")):
        path = posixpath.normpath(name)
        if path.startswith(("/", "../")) or path == "..":
            raise DarkroomError(
                f"{where} names the file {shown(file_name)}, which is not in the folder of the table: "
                "paths in a table are relative to its folder, and lead into it."
            )
        full = posixpath.join(posixpath.dirname(table), path)
        if full in known:
            return full
    if full.isascii():
        return full
    if not forms:
        forms.update((unicodedata.normalize("NFC", each), each) for each in sorted(known))
    return forms.get(unicodedata.normalize("NFC", full), full)


def _refused(root: Path, path: str, known: bool) -> Finding:
    if known:
        return Finding(Reason.KEY_TWICE, "an earlier row of a table names this file")
    if "\0" not in path and os.path.lexists(path_in(root, path)):
        return Finding(Reason.NOT_AN_IMAGE, "its name is hidden, or has not the ending of an image")
    return Finding(Reason.MISSING, "the table names this file, and it is not there")
