"""Where the images of a folder have their classes and captions: what settings of the source `folder` fit it."""

# No effect on any output: proposes settings

import csv
import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from darkroom.data.sources.metadata import path_in
from darkroom.data.sources.table import FILE_NAME
from darkroom.data.sources.walk import Found, split_ending, walk
from darkroom.errors import DarkroomError
from darkroom.params.sources import Folder

# Columns of metadata tables by the names that people give them, the first that is there.
_LABELS = ("label", "class", "category", "label_name", "class_name", "labels")
_CAPTIONS = ("text", "caption", "captions", "description", "prompt", "title")
_MOST = 0.8  # fraction of the images that must lie in folders, or have a text, for this to be the rule


def folder_settings(root: Path) -> Folder:
    """Return the settings that fit a folder: a table, subfolders, or texts beside the images.

    Raises:
        DarkroomError: the folder cannot be listed, or a table of it cannot be read.
    """
    try:
        found = walk(os.fsencode(root), captions=False, tables=True)
    except OSError as error:
        raise DarkroomError(f"the folder {root} cannot be listed: {error.strerror}.") from error
    columns = _columns(path_in(root, found.tables[0])) if found.tables else set()
    label = next((name for name in _LABELS if name in columns), None)
    caption = next((name for name in _CAPTIONS if name in columns), None)
    settings: dict[str, str] = {"label": _label_by_folder(found.images) if label is None else "metadata"}
    if label is not None:
        settings["label_column"] = label
    if caption is not None:
        settings |= {"caption": "metadata", "caption_column": caption}
    elif _texts_beside(root, found):
        settings["caption"] = "txt"
    return Folder.model_validate(settings)


def _label_by_folder(images: Iterable[str]) -> str:
    """Return `parent` where most images lie in subfolders, of which there are several; else `none`."""
    folders = [path.split("/")[:-1] for path in images]
    inside = [path for path in folders if path]
    if len(inside) < _MOST * len(folders):
        return "none"
    parents = Counter(path[-1] for path in inside)
    tops = Counter(path[0] for path in inside)
    # photos/2019/05 and the like: the nearest folders hold next to nothing each
    if len(parents) > len(inside) / 5 and 1 < len(tops) < len(parents):
        return "top"
    return "parent" if 1 < len(parents) <= len(inside) / 2 else "none"


def _texts_beside(root: Path, found: Found) -> bool:
    """Return whether most of the images, by a few of them, have a text file of their name."""
    images = sorted(found.images)
    chosen = images[:: max(1, len(images) // 200)]
    there = sum(
        any(path_in(root, f"{split_ending(path)[0]}.{ending}").is_file() for ending in ("txt", "TXT", "Txt"))
        for path in chosen
    )
    return bool(chosen) and there >= _MOST * len(chosen)


def _columns(table: Path) -> set[str]:
    """Return the columns of a table, of a .jsonl those of its first 100 rows.

    Raises:
        DarkroomError: it cannot be read.
    """
    try:
        if table.suffix == ".parquet":
            import pyarrow.parquet as pq

            return set(pq.read_schema(table).names)
        with table.open(encoding="utf-8", newline="") as file:
            if table.suffix == ".csv":
                return set(next(csv.reader(file), []))
            rows = [json.loads(line) for line, _ in zip(file, range(100), strict=False) if line.strip()]
        return {column for row in rows if isinstance(row, dict) for column in row if column != FILE_NAME}
    except (OSError, ValueError, csv.Error) as error:
        raise DarkroomError(f"the table {table} cannot be read: {error}. Repair or remove it.") from error
