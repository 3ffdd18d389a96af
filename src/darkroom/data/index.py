"""The index of a shard: one row an image, in a parquet file beside the tar."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import ArtifactError, check_file

# offset: of the image's first byte in the tar; sha256: of the image's bytes, hexadecimal; label, caption: may be null.
IMAGES = pa.schema(
    [
        ("key", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("sha256", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("label", pa.string()),
        ("caption", pa.string()),
    ]
)
# The index of a latent shard: which image each row is, so that nobody needs the images to train on latents.
LATENTS = pa.schema([("key", pa.string()), ("label", pa.string())])


def write_index(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> str:
    """Write the columns of `schema` as parquet and return the file's sha256; equal rows give equal bytes."""
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, compression="zstd")
    return sha256_file(path)


def read_index(folder: Path, entry: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Return the index of the shard that a manifest's `entry` describes, in row order.

    Raises:
        ArtifactError: missing, damaged, or not as many rows as the manifest says; names the file.
    """
    path = folder / f"{entry['name']}.parquet"
    check_file(path, entry["index_sha256"])
    table = pq.read_table(path, schema=schema)
    if table.num_rows != entry["images"]:
        raise ArtifactError(
            f"{path} has {table.num_rows} rows, and the manifest says {entry['images']}: "
            "run the stage that makes it again."
        )
    return table
