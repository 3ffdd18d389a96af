"""`darkroom data show`: a summary of the data, as text or JSON, and a grid of images."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from darkroom.artifacts.manifest import NAME as MANIFEST
from darkroom.data.catalog_writer import data_grid, grid_columns, shown_rows
from darkroom.data.damage import QUARANTINE as LIST
from darkroom.data.grid import evenly_spaced, save_png
from darkroom.data.layout import SHARDS
from darkroom.data.reader import ImageShards
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from darkroom.tools.places import require_picture
from darkroom.tools.verify.params import left_over, read_params, require_known
from darkroom.tools.verify.summary import failed_ingests, summary
from darkroom.tools.verify.text import failed_text, text_of

LOGS = Path("logs")


def show(names: Sequence[str], split: str | None, grid: Path, images: int, every_row: bool, as_json: bool) -> str:
    """Return a summary of some parts of the data, and write a grid of their images.

    Args:
        names: the names of the parts; empty: all parts in params.yaml.
        split: the split of the images; None: all splits.
        grid: the path of the PNG.
        images: the maximum number of images in the grid; 0: no grid.
        every_row: whether to list every row of quarantine.parquet.
        as_json: whether to return JSON.

    Raises:
        DarkroomError: params.yaml is not valid, or has no such part, `images` is negative, or no PNG can be written.
        ArtifactError: a part is missing or damaged; the message names the file.
    """
    if images < 0:
        raise DarkroomError(f"--images is {images}, and must be 0 or more.")
    if images:
        require_picture(f"--grid {grid}", grid)
    params = read_params()
    wanted = require_known(names, list(params.parts))
    failed = [part for part in wanted if _failed(part)]
    parts = [part for part in wanted if part not in failed]
    splits = [split] if split else list(SPLITS)
    metadata: dict[str, Any] = {"failed": failed_ingests(failed, LOGS, every_row), "every_row": every_row}
    if parts:
        metadata |= summary(parts, splits, every_row)
    metadata["left_over"] = left_over(list(params.parts))
    if images and metadata.get("images"):
        metadata["grid"] = _grid(parts, splits, grid, images)
    if as_json:
        return json.dumps(metadata, indent=2, ensure_ascii=False)
    text = "\n\n".join(
        [*(["\n".join(failed_text(metadata))] if failed else []), *([text_of(metadata)] if parts else [])]
    )
    if metadata["left_over"]:
        text += f"\n\n{', '.join(metadata['left_over'])}: of no part in params.yaml; nothing reads it, remove it."
    return text


def _failed(part: str) -> bool:
    """Return whether the latest `ingest` of a part ended with a list of samples of which none could be used."""
    written, listed = SHARDS / part / MANIFEST, LOGS / f"ingest-{part}" / LIST
    return listed.is_file() and not (written.is_file() and written.stat().st_mtime > listed.stat().st_mtime)


def _grid(parts: Sequence[str], splits: Sequence[str], path: Path, images: int) -> dict[str, Any]:
    """Write a grid of evenly spaced images, and return their keys and labels, row by row of the grid."""
    readers = [ImageShards.open_parts(parts, split, SHARDS) for split in splits]
    candidates = [shown_rows(reader) for reader in readers]
    firsts = np.cumsum([0, *map(len, candidates)])
    pictures, names = [], []
    for place in evenly_spaced(images, int(firsts[-1])):
        number = int(np.searchsorted(firsts, place, side="right")) - 1
        reader, row = readers[number], int(candidates[number][place - firsts[number]])
        pictures.append(reader[row])
        shard = next(shard for shard in reader.shards if shard.first <= row < shard.first + shard.images)
        metadata = reader.texts(shard)[row - shard.first]
        names.append({"part": shard.folder.parent.name, "split": splits[number], **metadata})
    save_png(path, data_grid(np.stack(pictures)))
    columns = grid_columns(len(pictures))
    rows = [names[first : first + columns] for first in range(0, len(names), columns)]
    return {"file": str(path), "images": len(pictures), "rows": rows}
