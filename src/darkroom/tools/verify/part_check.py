"""Checks the image shards of a part: manifest, indexes, tars, their statistics, and quarantine.parquet."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from darkroom.artifacts.atomic import json_bytes
from darkroom.artifacts.manifest import NAME
from darkroom.data.damage import QUARANTINE, SCHEMA, Action
from darkroom.data.images import EXTENSION
from darkroom.data.index import IMAGES
from darkroom.data.index import NAME as INDEX
from darkroom.data.layout import KIND
from darkroom.data.shards import KEY
from darkroom.data.splits import SPLITS, split_of
from darkroom.params.ingest import Ingest
from darkroom.remote import is_remote
from darkroom.tools.verify.problems import Problem, check_hash, remake, sealed
from darkroom.tools.verify.tar_check import Checked, Job, check_tar

_WORKERS = 8  # maximum number of tars that are read at once; hashing releases the interpreter lock
_HEADER = 512  # bytes of a tar header, before the data of a member


@dataclass
class Result:
    """The result of the check of a part.

    images: the number of images; of latents or embeddings, of their rows.
    skipped: the number of remote tars that were not read.
    indexes: the rows of each split with a valid index.
    manifest: the manifest; None where it is damaged.
    """

    faults: list[Problem] = field(default_factory=list)
    images: int = 0
    shards: int = 0
    bytes: int = 0
    skipped: int = 0
    indexes: dict[str, pa.Table] = field(default_factory=dict)
    manifest: dict[str, Any] | None = None


Progress = Callable[[Iterable[Checked], int], Iterable[Checked]]


def check_part(
    folder: Path,
    name: str,
    ingest: Ingest,
    processors: int,
    also_remote: bool,
    progress: Progress = lambda items, _: items,
) -> Result:
    """Check every byte of a part.

    Args:
        folder: data/shards/PART.
        name: the name of the part.
        ingest: the section `ingest`, for the splits.
        processors: the number of threads that read tars.
        also_remote: whether to read remote tars.
        progress: wraps the iterator over checked tars, with the total number of images, to report progress.
    """
    again = f"delete {folder} and make it again with `dvc repro ingest@{name}`"
    remedy = f"the rest of the part cannot be checked without it; {again}"
    part = sealed(folder, KIND, remedy, "part", "splits", "quarantine", "in_place")
    if isinstance(part, Problem):
        return Result([part])
    result = Result(manifest=part)
    if part["part"] != name:
        result.faults.append(Problem(folder / NAME, "is of another part", again, detail=part["part"]))
    damaged = remake(folder, f"ingest@{name}")
    result.faults += _quarantine(folder / QUARANTINE, part["quarantine"], damaged)
    result.bytes += sum(path.stat().st_size for path in folder.rglob("*") if path.suffix != ".tar" and path.is_file())
    jobs: dict[str, Job] = {}
    for split in SPLITS:
        metadata = part["splits"][split]
        images = [entry["images"] for entry in metadata["shards"]]
        result.images += sum(images)
        table = read_index(folder / split, IMAGES, metadata, damaged)
        rows: list[pa.Table | None] = [None] * len(images)
        if isinstance(table, Problem):
            result.faults.append(table)
        else:
            result.indexes[split] = table
            rows = [table.slice(sum(images[:at]), count) for at, count in enumerate(images)]
            result.faults += _rows(folder / split / INDEX, table, metadata, part, again)
        for entry, some in zip(metadata["shards"], rows, strict=True):
            if not part["in_place"]:
                result.faults += _statistics(folder / split / f"{entry['name']}_stats.json", entry, damaged)
            if some is not None:
                result.faults += _places(folder / split / INDEX, some, entry, again, part["in_place"])
            job = _job(folder / split, entry, some, part, damaged)
            if known := jobs.get(job.place):  # a tar with images of several splits is read once
                tables = [rows for rows in (known.rows, job.rows) if rows is not None]
                job = replace(known, rows=pa.concat_tables(tables) if tables else None)
            jobs[job.place] = job
    result.faults += _keys(folder, result.indexes, ingest.splits.model_dump(), ingest.split_seed, again)
    result.shards = len(jobs)
    wanted = [job for job in jobs.values() if also_remote or not is_remote(job.place)]
    result.skipped = len(jobs) - len(wanted)
    with ThreadPoolExecutor(max(1, min(_WORKERS, processors))) as pool:
        for checked in progress(pool.map(check_tar, wanted), result.images):
            result.faults += checked.faults
            result.bytes += checked.bytes
    return result


def read_index(folder: Path, schema: pa.Schema, split: Mapping[str, Any], remedy: str) -> pa.Table | Problem:
    """Return the index in the folder of a split, or its error: then no row of it is used.

    Args:
        folder: the folder of the split.
        schema: the columns of the index.
        split: what the manifest says of the split.
        remedy: what to do where it is damaged.
    """
    path, images = folder / INDEX, [entry["images"] for entry in split["shards"]]
    if wrong := check_hash(path, split["index_sha256"], remedy):
        return wrong[0]
    file = pq.ParquetFile(path)
    if not file.schema_arrow.equals(schema):
        return Problem(path, "has other columns than an index of this version", remedy)
    groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    if groups != images:
        detail = f"{sum(groups):,} rows in {len(groups):,} shards, {sum(images):,} in {len(images):,}"
        return Problem(path, "has other counts than the manifest", remedy, detail=detail)
    return file.read()


def _rows(
    path: Path, table: pa.Table, split: Mapping[str, Any], part: Mapping[str, Any], remedy: str
) -> Iterator[Problem]:
    """Yield the differences of an index from its manifest: labels, counts, sizes."""
    labels = Counter({pair["values"]: pair["counts"] for pair in table["label"].drop_null().value_counts().to_pylist()})
    if labels != Counter(split["labels"]) or table["label"].null_count != split["unlabelled"]:
        yield Problem(path, "has other labels than the manifest counts", remedy)
    if table.num_rows != split["images"]:
        detail = f"{table.num_rows:,}, and {split['images']:,}"
        yield Problem(path, "has another number of images than the manifest says", remedy, detail=detail)
    strange = np.zeros(table.num_rows, bool)
    for side in ("width", "height"):
        strange |= table[side].to_numpy() != part["image"]["size"]
        strange |= table[f"original_{side}"].to_numpy() < 1
    for row in np.flatnonzero(strange).tolist():
        yield Problem(path, "has a size that the manifest does not allow", remedy, table["key"][row].as_py())


def _places(path: Path, rows: pa.Table, shard: Mapping[str, Any], remedy: str, in_place: bool) -> Iterator[Problem]:
    """Yield the images of a shard whose bytes are outside its tar, or overlap but for hard links in a tar of others."""
    offsets, sizes = rows["offset"].to_numpy(), rows["size"].to_numpy()
    ends = offsets + sizes
    outside = (offsets < _HEADER) | (sizes < 0) | (ends > shard["bytes"])
    order = np.argsort(offsets, kind="stable")
    over = np.zeros(len(offsets), bool)
    linked = in_place & (offsets[order[1:]] == offsets[order[:-1]]) & (ends[order[1:]] == ends[order[:-1]])
    over[order[1:]] = (offsets[order[1:]] < ends[order[:-1]] + _HEADER) & ~linked
    for row in np.flatnonzero(outside | over).tolist():
        what = "lies outside its tar" if outside[row] else "lies over another one in its tar"
        yield Problem(path, what, remedy, rows["key"][row].as_py(), f"shard {shard['name']}")


def _keys(
    folder: Path, tables: Mapping[str, pa.Table], fractions: Mapping[str, float], seed: int, remedy: str
) -> Iterator[Problem]:
    """Yield the keys of a part that are repeated, are no valid file name, or are not in the split of their hash.

    Args:
        folder: of the part.
        tables: the index of each split.
        fractions: `ingest.splits`, the fraction of each split.
        seed: `ingest.split_seed`.
        remedy: what to do.
    """
    counts = Counter(key for table in tables.values() for key in table["key"].to_pylist())
    for split, table in tables.items():
        path = folder / split / INDEX
        for key in table["key"].to_pylist():
            if key is None or not KEY.fullmatch(key):
                yield Problem(path, "has a key that cannot name a file", remedy, repr(key))
                continue
            if counts[key] > 1:
                yield Problem(path, "has a key that comes more than once in the part", remedy, key)
            if (found := split_of(key, fractions, seed)) != split:
                what = "is in another split than `ingest.splits` and `ingest.split_seed` give"
                yield Problem(path, what, remedy, key, f"{split}, and {found}")


def _job(folder: Path, entry: Mapping[str, Any], rows: pa.Table | None, part: Mapping[str, Any], damaged: str) -> Job:
    if not part["in_place"]:
        place, extension = str(folder / f"{entry['name']}.tar"), EXTENSION.get(part["image"]["format"], "?")
        return Job(place, entry["bytes"], entry["sha256"], rows, extension, damaged)
    again = f"index it again with `dvc repro ingest@{part['part']}`"
    remedy = f"it changed since it was indexed; put the old file back, or {again}"
    return Job(entry["tar"], entry["bytes"], entry["sha256"], rows, None, remedy)


def _statistics(path: Path, entry: Mapping[str, Any], remedy: str) -> Iterator[Problem]:
    if not path.is_file():
        yield Problem(path, "is missing", remedy)
    elif path.read_bytes() != json_bytes({key: entry[key] for key in ("images", "bytes", "sha256")}):
        yield Problem(path, "says something else than the manifest", remedy)


def _quarantine(path: Path, metadata: Mapping[str, Any], remedy: str) -> Iterator[Problem]:
    if wrong := check_hash(path, metadata["sha256"], remedy):
        yield from wrong
        return
    if not pq.read_schema(path).equals(SCHEMA):
        yield Problem(path, "has other columns than a list of this version", remedy)
        return
    table = pq.read_table(path, columns=["action", "reason"])
    found: dict[str, dict[str, int]] = {action.value: {} for action in Action}
    for row in table.group_by(["action", "reason"]).aggregate([([], "count_all")]).to_pylist():
        found.setdefault(row["action"], {})[row["reason"]] = row["count_all"]
    if found != {action.value: metadata[action.value] for action in Action} or table.num_rows != metadata["rows"]:
        yield Problem(path, "has other counts than the manifest", remedy)
