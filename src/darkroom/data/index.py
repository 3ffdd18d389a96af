"""The index of a split: `index.parquet` with one row for each image, and one row group for each shard.

It is one file, since a thousand small files take seconds to open. It has a row group for each shard, so that a writer
holds one shard in memory, and a reader can read one shard.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, check_file, sha256_file

NAME = "index.parquet"
_THREADS = 4  # threads that open the indexes of parts in parallel
_TYPES = {
    **dict.fromkeys(("key", "label", "caption", "group"), pa.string()),
    **dict.fromkeys(("offset", "size"), pa.int64()),
    **dict.fromkeys(("width", "height", "original_width", "original_height"), pa.int32()),
}


def _type(name: str) -> pa.DataType:
    return pa.binary(32) if name.startswith("sha256") else _TYPES[name]


def schema_of(names: str) -> pa.Schema:
    """Return the schema of an index with some columns, each once."""
    return pa.schema([(name, _type(name)) for name in dict.fromkeys(names.split())])


# offset, size: position and number of the bytes of the image in the tar; sha256: the hash of these bytes; width,
# height: of the stored or prepared image; original_width, original_height: of the image in the source; label, caption:
# may be null.
IMAGES = schema_of("key offset size sha256 width height original_width original_height label caption")
# The index of latents. It holds keys and labels, so that a training on latents needs no images. sha256: the hash of the
# bytes of mean, then of logvar, of the row; sha256_mirror: the same of the mirror image; null where it is not stored.
# Moved images add sha256_left, sha256_mirror_left, …
LATENTS = schema_of("key label sha256 sha256_mirror")
# The index of embeddings. sha256, sha256_text, sha256_encoding: the hash of the bytes of the row in each kind of file;
# null where there is no such file.
EMBEDDINGS = schema_of("key label caption sha256 sha256_text sha256_encoding")


class IndexWriter:
    """Write `folder/index.parquet` shard by shard; equal rows give equal bytes.

    The rows of a part that is split by group also have a column `group`: PART/NUMBER.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._path, self._schema = folder / NAME, schema
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append the rows of the next shard, at least one; values that the schema does not name are ignored."""
        if self._writer is None and rows[0].get("group") is not None:
            self._schema = self._schema.append(pa.field("group", _type("group")))
        table = pa.Table.from_pylist(list(rows), schema=self._schema)
        self._open().write_table(table, row_group_size=len(rows))

    def close(self) -> str:
        """Finish the file and return its sha256."""
        self._open().close()
        return sha256_file(self._path)

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            # Keys and captions are all different, so a dictionary of them only costs time.
            self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd", use_dictionary=["label"])
        return self._writer


class Index:
    """The indexes of some folders, concatenated. A column is read on first use, and kept.

    Safe to use in forked processes, and to pickle: a copy reads its columns again.
    """

    def __init__(self, folders: Mapping[Path, Mapping[str, Any]]) -> None:
        """Check the indexes of `folders` against `shards` and `index_sha256` of their manifests.

        Raises:
            ArtifactError: missing, damaged, or with other counts than the manifest; the message names the file.
        """
        self._folders = [(folder, metadata["index_sha256"], _images(metadata)) for folder, metadata in folders.items()]
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._kept: NDArray[np.bool_] | None = None
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda each: _check(*each), self._folders))

    def load(self, *names: str) -> None:
        """Read some columns at once, unless they were read before: faster than one after the other."""
        if missing := [name for name in names if name not in self._columns]:
            with ThreadPoolExecutor(_THREADS) as pool:
                tables = list(pool.map(lambda each: _read(each[0] / NAME, missing), self._folders))
            # Not `schema.empty_table()`, which imports pandas.
            empty = pa.Table.from_batches([], pa.schema([(name, _type(name)) for name in missing]))
            table = pa.concat_tables([empty, *tables], promote_options="default")
            if self._kept is not None:
                table = table.filter(pa.array(self._kept))
            self._columns |= {name: table[name] for name in missing}

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Drop all rows but those that `kept`, bool (N,), marks, from all columns. Call it once."""
        self._kept, self._columns = kept, {}

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of all rows."""
        self.load(name)
        return self._columns[name]

    def numbers(self, name: str) -> NDArray[Any]:
        """Return a column of numbers, (N,). The array belongs to the caller: no reference is kept."""
        self.load(name)
        # Not `to_numpy()` of the column, which imports pandas.
        chunks = [np.from_dlpack(chunk) for chunk in self._columns.pop(name).chunks]
        return np.concatenate([np.empty(0, _TYPES[name].to_pandas_dtype()), *chunks])

    def digests(self, name: str) -> NDArray[np.uint8]:
        """Return a column of hashes, uint8 (N, 32). The array belongs to the caller."""
        self.load(name)
        column = self._columns.pop(name)
        chunks = [np.frombuffer(b"", np.uint8)]
        for chunk in column.chunks:
            width = chunk.type.byte_width
            chunks.append(np.frombuffer(chunk.buffers()[1], np.uint8)[chunk.offset * width :][: len(chunk) * width])
        return np.concatenate(chunks).reshape(len(column), -1 if len(column) else 32)

    def texts(self, name: str) -> list[str | None]:
        """Return a column of texts, as a new list."""
        return self.column(name).to_pylist()

    def some(self, name: str, rows: Sequence[int]) -> list[Any]:
        """Return the values of a column in some rows, in their order."""
        return self.column(name).take(pa.array(rows, pa.int64())).to_pylist()

    def rows(self, names: Sequence[str], first: int, count: int) -> list[dict[str, Any]]:
        """Return some columns of `count` rows, from row `first` on, as one mapping for each row."""
        columns = {name: self.column(name).slice(first, count) for name in names}
        return pa.table(columns).to_pylist()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_columns": {}}


class Indexed:
    """A dataset with an index: keys and labels by row."""

    _index: Index

    @property
    def keys(self) -> list[str]:
        """The key of each row."""
        return [str(key) for key in self._index.texts("key")]

    @property
    def labels(self) -> list[str | None]:
        """The class name of each row; None where the image has no label."""
        return self._index.texts("label")

    @property
    def label_column(self) -> pa.ChunkedArray:
        """`labels` as an Arrow column: a million labels as a Python list take 70 MB."""
        return self._index.column("label")

    @property
    def groups(self) -> NDArray[np.int64]:
        """The number of the group of each row, (N,); an image of a part without groups is its own group."""
        column = self._index.column("group").combine_chunks().dictionary_encode()
        numbers = np.array(column.indices.fill_null(-1), dtype=np.int64)
        alone = numbers < 0
        numbers[alone] = len(column.dictionary) + np.arange(alone.sum())
        return numbers

    def keys_of(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows."""
        return self._index.some("key", rows)

    def some(self, name: str, rows: Sequence[int]) -> list[Any]:
        """Return the values of a column of the index in some rows."""
        return self._index.some(name, rows)


def _images(metadata: Mapping[str, Any]) -> list[int]:
    return [entry["images"] for entry in metadata["shards"]]


def _read(path: Path, names: list[str]) -> pa.Table:
    # Not `read_table`, which is made for data sets of many files and takes twice the time.
    with pq.ParquetFile(path) as file:
        return file.read(columns=names, use_threads=False)


def _check(folder: Path, sha256: str, images: Sequence[int]) -> None:
    path = folder / NAME
    check_file(path, sha256)
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if groups != images:
        raise ArtifactError(
            f"{path} has {sum(groups)} rows in {len(groups)} shards, but the manifest says {sum(images)} in "
            f"{len(images)}: rerun the stage that makes it."
        )
