"""Checks an index against the manifest and itself: counts, byte ranges in the tars, keys, splits, labels, sizes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from darkroom.artifacts.manifest import ArtifactError, check_file
from darkroom.data.index import NAME
from darkroom.data.shards import KEY
from darkroom.data.splits import split_of
from darkroom.tools.verify.manifests import Part, Split, Tar
from darkroom.tools.verify.problems import Problem

_HEADER = 512  # bytes of a tar header, before the data of a member


def read_index(folder: Path, schema: pa.Schema, images: Sequence[int], sha256: str, remedy: str) -> pa.Table | Problem:
    """Return the index in a folder, or its error: then no row of it is used.

    Args:
        folder: the folder of the split.
        schema: the columns of the index.
        images: the number of images of each shard, from the manifest.
        sha256: the hash of the file, from the manifest.
        remedy: what to do where it is damaged.
    """
    path = folder / NAME
    try:
        check_file(path, sha256)
    except ArtifactError:
        what = "is damaged: its sha256 is not that of the manifest" if path.is_file() else "is missing"
        return Problem(path, what, remedy)
    file = pq.ParquetFile(path)
    if not file.schema_arrow.equals(schema):
        return Problem(path, "has other columns than an index of this version", remedy)
    groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    if groups != list(images):
        detail = f"{sum(groups):,} rows in {len(groups):,} shards, {sum(images):,} in {len(images):,}"
        return Problem(path, "has other counts than the manifest", remedy, detail=detail)
    return file.read()


def slices(table: pa.Table, images: Sequence[int]) -> Iterator[pa.Table]:
    """Yield the rows of each shard."""
    first = 0
    for count in images:
        yield table.slice(first, count)
        first += count


def check_rows(path: Path, table: pa.Table, split: Split, part: Part, remedy: str) -> Iterator[Problem]:
    """Yield the differences of an index from its manifest: labels, counts, sizes, byte ranges in the tars."""
    labels = Counter(
        {str(pair["values"]): pair["counts"] for pair in table["label"].drop_null().value_counts().to_pylist()}
    )
    if labels != Counter(split.labels) or table["label"].null_count != split.unlabelled:
        yield Problem(path, "has other labels than the manifest counts", remedy)
    if table.num_rows != split.images:
        detail = f"{table.num_rows:,}, and {split.images:,}"
        yield Problem(path, "has another number of images than the manifest says", remedy, detail=detail)
    strange = np.zeros(table.num_rows, bool)
    for side in ("width", "height"):
        strange |= table[side].to_numpy() != part.image.size
        strange |= table[f"original_{side}"].to_numpy() < 1
    for row in np.flatnonzero(strange).tolist():
        yield Problem(path, "has a size that the manifest does not allow", remedy, table["key"][row].as_py())
    for entry, rows in zip(split.shards, slices(table, [shard.images for shard in split.shards]), strict=True):
        yield from _places(path, rows, entry, remedy, part.in_place)


def _places(path: Path, rows: pa.Table, shard: Tar, remedy: str, in_place: bool) -> Iterator[Problem]:
    """Yield the images of a shard whose bytes are outside its tar, or overlap but for hard links in a tar of others."""
    offsets, sizes = rows["offset"].to_numpy(), rows["size"].to_numpy()
    ends = offsets + sizes
    outside = (offsets < _HEADER) | (sizes < 0) | (ends > shard.bytes)
    order = np.argsort(offsets, kind="stable")
    over = np.zeros(len(offsets), bool)
    linked = in_place & (offsets[order[1:]] == offsets[order[:-1]]) & (ends[order[1:]] == ends[order[:-1]])
    over[order[1:]] = (offsets[order[1:]] < ends[order[:-1]] + _HEADER) & ~linked
    for row in np.flatnonzero(outside | over).tolist():
        what = "lies outside its tar" if outside[row] else "lies over another one in its tar"
        yield Problem(path, what, remedy, rows["key"][row].as_py(), f"shard {shard.name}")


def check_keys(
    tables: Mapping[Path, tuple[str, pa.Table]], fractions: Mapping[str, float], seed: int, remedy: str
) -> Iterator[Problem]:
    """Yield the keys of a part that are repeated, are no valid file name, or are not in the split of their hash.

    Args:
        tables: split and rows by the path of the index.
        fractions: `ingest.splits`, the fraction of each split.
        seed: `ingest.split_seed`.
        remedy: what to do.
    """
    counts = pa.chunked_array(
        [chunk for _, table in tables.values() for chunk in table["key"].chunks], pa.string()
    ).value_counts()
    twice = set(counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist())
    for path, (split, table) in tables.items():
        for key in table["key"].to_pylist():
            if key is None or not KEY.fullmatch(key):
                yield Problem(path, "has a key that cannot name a file", remedy, repr(key))
                continue
            if key in twice:
                yield Problem(path, "has a key that comes more than once in the part", remedy, key)
            if (found := split_of(key, fractions, seed)) != split:
                what = "is in another split than `ingest.splits` and `ingest.split_seed` give"
                yield Problem(path, what, remedy, key, f"{split}, and {found}")
