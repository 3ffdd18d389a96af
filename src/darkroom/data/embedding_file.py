"""Embeddings of a shard as NumPy files: one for images, one for texts, one for text encodings; float16.

The names are those of clip-retrieval and DALLE2-pytorch, so that both read the files. The format
(numpy.lib.format): a magic number, a header with dtype, order and shape, and the bytes of the array.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.rows import mapped

KIND = "embeddings"  # the kind in the manifest beside the splits
# For each kind of embedding: the start of the file name, and the column of the index with the hashes of the rows.
PREFIXES = {"image": "img_emb", "text": "text_emb", "encoding": "text_enc"}
COLUMNS = {"image": "sha256", "text": "sha256_text", "encoding": "sha256_encoding"}
DTYPE = np.dtype("<f2")
_HEADER = 4096  # bytes that surely hold the header of an array without fields
_PARSER = Lock()  # NumPy parses a header as Python, and CPython 3.11 fails at that in two threads (gh-106905)


def file_name(what: str, shard: str) -> str:
    """Return the name of a shard's file: `img_emb_00000.npy`."""
    return f"{PREFIXES[what]}_{shard}.npy"


@dataclass(frozen=True)
class EmbeddingFile:
    """A memory-mapped file: its bytes, the offset of the array in bytes, its shape and dtype."""

    content: memoryview
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def array(self) -> NDArray[Any]:
        """The array, as a view of the memory map."""
        count = int(np.prod(self.shape))
        return np.frombuffer(self.content, self.dtype, count, self.start).reshape(self.shape)


def map_embeddings(path: Path) -> EmbeddingFile:
    """Return a memory-mapped file of floating-point numbers: only its header is read.

    Raises:
        ArtifactError: not such a file, or its size does not fit its header; the message names the file.
    """
    try:
        content = mapped(path)
        header = BytesIO(bytes(content[:_HEADER]))
        version = npy.read_magic(header)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        with _PARSER:
            shape, fortran, dtype = read(header)
        start, wanted = header.tell(), int(np.prod(shape)) * dtype.itemsize
        if fortran or dtype.kind != "f" or not shape or start + wanted != len(content):
            raise ValueError(f"{dtype} {shape} in {'columns' if fortran else 'rows'}, {len(content) - start} bytes")
        return EmbeddingFile(content, start, tuple(shape), dtype)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{path} is not a file of embeddings, rows of floating-point numbers as NumPy saves them ({error}): "
            "restore it from where it came."
        ) from error


def write_array(path: Path, values: NDArray[np.float16]) -> None:
    """Write an array as `numpy.save` does; equal arrays give equal bytes."""
    with path.open("wb") as file:
        npy.write_array(file, np.ascontiguousarray(values, dtype=DTYPE), version=(1, 0), allow_pickle=False)


def row_shapes(dim: int, encoding: Sequence[int] | None) -> dict[str, tuple[int, ...]]:
    """Return the shape of a row of each kind of file: (dim,) of image and text, `encoding` (L, W) of an encoding."""
    return {"image": (dim,), "text": (dim,), **({"encoding": tuple(encoding)} if encoding else {})}
