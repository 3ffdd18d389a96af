"""`darkroom data`: a summary of the data, as text or JSON, and a grid of images.

The summary is computed from columns of the indexes alone.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typer import Argument, Option

from darkroom.artifacts.manifest import NAME, read_manifest
from darkroom.data.catalog import class_warnings
from darkroom.data.catalog_writer import (
    data_grid,
    find_duplicates,
    find_shared_keys,
    grid_columns,
    natural_order,
    shown_rows,
    tar_sizes,
)
from darkroom.data.damage import QUARANTINE as LIST
from darkroom.data.damage import SCHEMA, Action, read_quarantine
from darkroom.data.grid import evenly_spaced, save_png
from darkroom.data.index import IMAGES, Index
from darkroom.data.layout import KIND, SHARDS
from darkroom.data.reader import ImageShards
from darkroom.data.sources.walk import passed_over
from darkroom.data.splits import SPLITS
from darkroom.tools.places import require_picture
from darkroom.tools.verify.problems import left_over, read_parts
from darkroom.tools.verify.text import failed_text, text_of

LOGS = Path("logs")
_EXAMPLES = 5  # number of captions shown
_FIRST = 3  # number of samples shown for each reason


def show(
    names: Annotated[
        list[str] | None, Argument(metavar="PART", help="parts of params.yaml; default: all of them")
    ] = None,
    split: Annotated[Literal["train", "val", "test"] | None, Option(help="images of this split alone")] = None,
    grid: Annotated[Path, Option(help="where the grid is written")] = Path("logs/data/grid.png"),
    images: Annotated[int, Option(min=0, help="images in the grid; 0: no grid")] = 36,
    every_row: Annotated[
        bool, Option("--quarantine", help="list every sample that was quarantined or repaired")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="print JSON")] = False,
) -> str:
    """Return a summary of some parts of the data, and write a grid of their images.

    Raises:
        DarkroomError: params.yaml is not valid, or has no such part, or no PNG can be written.
        ArtifactError: a part is missing or damaged; the message names the file.
    """
    if images:
        require_picture(f"--grid {grid}", grid)
    known, wanted = read_parts(names or [])
    failed = [part for part in wanted if _failed(part)]
    parts = [part for part in wanted if part not in failed]
    splits = [split] if split else list(SPLITS)
    lists = {part: pq.read_table(LOGS / f"ingest-{part}" / LIST, schema=SCHEMA) for part in failed}
    metadata: dict[str, Any] = {"failed": _listed(lists, every_row), "every_row": every_row}
    if parts:
        metadata |= summary(parts, splits, every_row)
    metadata["left_over"] = left_over(known)
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
    written, listed = SHARDS / part / NAME, LOGS / f"ingest-{part}" / LIST
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


def summary(parts: Sequence[str], splits: Sequence[str], every_row: bool = False) -> dict[str, Any]:
    """Return a summary of some parts, as JSON values.

    Args:
        parts: the names of the parts.
        splits: the splits of the images; quarantined samples have no split, and are listed for the whole part.
        every_row: whether to list every row of quarantine.parquet, not only the first rows of each reason.

    Returns:
        parts (name, source, images of each split, shards, bytes, in_place, mirror, quarantine, passed_over), images,
        classes, class_warnings (of all splits), sizes, captions, quarantine, and duplicates and shared_keys over all
        splits.

    Raises:
        ArtifactError: a part is missing or damaged; the message names the file.
    """
    manifests = {part: read_manifest(SHARDS / part, KIND) for part in parts}
    folders = {
        SHARDS / part / split: manifest["splits"][split] for part, manifest in manifests.items() for split in splits
    }
    index = Index(folders, IMAGES)
    sizes = [
        np.full(sum(manifest["splits"][split]["images"] for split in splits), manifest["image"]["size"], np.int64)
        for manifest in manifests.values()
    ]
    lists = {part: read_quarantine(SHARDS / part, manifest) for part, manifest in manifests.items()}
    return {
        "splits": list(splits),
        "parts": [_part(name, manifest, splits) for name, manifest in manifests.items()],
        "images": len(index.column("label")),
        "classes": _classes(index.column("label")),
        "class_warnings": class_warnings(_by_split(manifests)),
        "sizes": _sizes(index, np.concatenate(sizes)),
        "captions": _captions(index),
        "quarantine": _listed(lists, every_row),
        "duplicates": find_duplicates(manifests, SHARDS),
        "shared_keys": find_shared_keys(manifests, SHARDS),
    }


def _part(name: str, manifest: Mapping[str, Any], splits: Sequence[str]) -> dict[str, Any]:
    tars = tar_sizes(manifest, splits)
    return {
        "name": name,
        "source": manifest["source"].get("name", "?"),
        "images": {split: manifest["splits"][split]["images"] for split in splits},
        "shards": len(tars),
        "bytes": sum(tars.values()),
        "image": manifest["image"],
        "in_place": manifest["in_place"],
        "mirror": manifest["mirror"],
        "quarantine": {action.value: manifest["quarantine"][action.value] for action in Action},
        "passed_over": passed_over(manifest["source"]),
    }


def _classes(labels: pa.ChunkedArray) -> dict[str, Any]:
    """Return the image count of each class in descending order; imbalance: the largest over the smallest."""
    pairs = {str(pair["values"]): pair["counts"] for pair in labels.drop_null().value_counts().to_pylist()}
    counts = {name: pairs[name] for name in natural_order(pairs)}
    ranked = dict(sorted(counts.items(), key=lambda pair: -pair[1]))
    most, least = max(counts.values(), default=0), min(counts.values(), default=0)
    return {"unlabelled": labels.null_count, "imbalance": most / least if least else None, "counts": ranked}


def _by_split(manifests: Mapping[str, Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Return for each split the number of images of each class, over all parts."""
    found = {split: Counter[str]() for split in SPLITS}
    for manifest in manifests.values():
        for split, counts in found.items():
            counts.update(manifest["splits"][split]["labels"])
    return found


def _spread(values: Any) -> list[Any] | None:
    """Return minimum, median and maximum of some numbers; None where there are none."""
    return np.percentile(values, (0, 50, 100), method="lower").tolist() if len(values) else None


def _sizes(index: Index, sizes: Any) -> dict[str, Any]:
    """Return statistics of the originals: the shorter side in pixels, width over height, and enlarged images."""
    width, height = index.numbers("original_width"), index.numbers("original_height")
    shorter = np.minimum(width, height)
    return {
        "shorter_side": _spread(shorter),
        "aspect_ratio": _spread(width / np.maximum(height, 1)),
        "enlarged": int((shorter < sizes).sum()),
    }


def _captions(index: Index) -> dict[str, Any]:
    captions = index.column("caption")
    there = captions.drop_null()
    rows = pc.indices_nonzero(pc.is_valid(captions))
    shown = [rows[place].as_py() for place in evenly_spaced(_EXAMPLES, len(there))]
    return {
        "images": len(there),
        "without": captions.null_count,
        "words": _spread([len(text.split()) for chunk in there.chunks for text in chunk.to_pylist()]),
        "characters": _spread(pc.utf8_length(there).to_numpy()),
        "examples": [{"key": index.column("key")[row].as_py(), "caption": captions[row].as_py()} for row in shown],
    }


def _listed(tables: Mapping[str, pa.Table], every_row: bool) -> list[dict[str, Any]]:
    """Return for each part, action and reason the number of samples, and the first of them, or all."""
    found, order = [], [action.value for action in Action]
    for part, table in tables.items():
        counts = Counter(zip(table["action"].to_pylist(), table["reason"].to_pylist(), strict=True))
        for action, reason in sorted(counts, key=lambda pair: (order.index(pair[0]), pair[1])):
            both = pc.and_(pc.equal(table["action"], action), pc.equal(table["reason"], reason))
            rows = table.filter(both).select(["key", "source", "detail"])
            first = (rows if every_row else rows.slice(0, _FIRST)).to_pylist()
            samples = counts[action, reason]
            found.append({"part": part, "action": action, "reason": reason, "samples": samples, "first": first})
    return found
