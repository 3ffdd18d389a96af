"""Read embeddings of images and texts by row number; rows are those of the image shards.

A shard has NumPy files: one for images, one for texts, one for text encodings; float16. The names are those of
clip-retrieval and DALLE2-pytorch, so that both read the files. The format (numpy.lib.format): a magic number, a header
with dtype, order and shape, and the bytes of the array.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, read_manifest
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.data.rows import Rows, StoredRows, StoredShard, mapped
from darkroom.remote import redacted

EMBEDDING_PARTS = Path("data/embeddings")
KIND = "embeddings"  # the kind in the manifest next to the splits
# For each kind of embedding: the start of the file name, and the column of the index with the hashes of the rows.
PREFIXES = {"image": "img_emb", "text": "text_emb", "encoding": "text_enc"}
COLUMNS = {"image": "sha256", "text": "sha256_text", "encoding": "sha256_encoding"}
DTYPE = np.dtype("<f2")
_HEADER = 4096  # maximum bytes of the header of an array without fields
_PARSER = Lock()  # NumPy parses a header as Python, and CPython 3.11 fails at that in two threads (gh-106905)


def file_name(name: str, shard: str) -> str:
    """Return the name of a shard's file: `img_emb_00000.npy`."""
    return f"{PREFIXES[name]}_{shard}.npy"


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
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        with _PARSER:
            shape, fortran, dtype = read_header(header)
        start, size = header.tell(), int(np.prod(shape)) * dtype.itemsize
        if fortran or dtype.kind != "f" or not shape or start + size != len(content):
            raise ValueError(f"{dtype} {shape} in {'columns' if fortran else 'rows'}, {len(content) - start} bytes")
        return EmbeddingFile(content, start, tuple(shape), dtype)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{path} is not a NumPy file of embeddings, rows of floating-point numbers ({error}): "
            "restore it from its source."
        ) from error


def write_array(path: Path, values: NDArray[np.float16]) -> None:
    """Write an array as `numpy.save` does; equal arrays give equal bytes."""
    with path.open("wb") as file:
        npy.write_array(file, np.ascontiguousarray(values, dtype=DTYPE), version=(1, 0), allow_pickle=False)


def row_shapes(dim: int, encoding: Sequence[int] | None) -> dict[str, tuple[int, ...]]:
    """Return the shape of a row of each kind of file: (dim,) of image and text, `encoding` (L, W) of an encoding."""
    return {"image": (dim,), "text": (dim,), **({"encoding": tuple(encoding)} if encoding else {})}


class EmbeddingShards(StoredRows):
    """Embeddings of one split of some parts, by row; see `StoredRows`.

    clip: the fingerprint of the CLIP that made the embeddings, the same for all parts.
    normalised: whether embeddings of images and texts have length 1.
    dim: the length of an embedding.
    encoding_shape: (L, W) of the encoding of a text; None: no encodings are stored.
    names: the kinds that every part has: image, text, encoding.
    """

    kind, plural, stage, folder = KIND, "embeddings", "embed_clip", EMBEDDING_PARTS

    def __init__(self, manifests: Mapping[str, Mapping[str, Any]], split: str, root: Path) -> None:
        """Open shards from the parts' manifests, after `open_parts` has checked that they fit together."""
        for part, manifest in manifests.items():
            if not manifest["splits"][split]["stored"]:
                raise ArtifactError(
                    f"{root / part} has no embeddings of the split {split}, because `embed_clip.store` omits it: "
                    "add it there, or compute them with models/clip when needed."
                )
        super().__init__(manifests, split, root)
        first = next(iter(manifests.values()))
        self.clip: str = first["clip"]
        self.normalised: bool = first["normalised"]
        self.dim: int = first["dim"]
        self.names = tuple(name for name in PREFIXES if all(name in each["names"] for each in manifests.values()))
        shape = next((each["encoding_shape"] for each in manifests.values() if each["encoding_shape"]), None)
        self.encoding_shape: tuple[int, int] | None = tuple(shape) if shape and "encoding" in self.names else None
        self._rows = row_shapes(self.dim, self.encoding_shape)
        self._map()

    @staticmethod
    def _alike(manifest: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "CLIPs": manifest["clip"],
            "normalisations": manifest["normalised"],
            "dimensions": manifest["dim"],
            "shapes of encodings": manifest["encoding_shape"],
        }

    def _path(self, shard: StoredShard, name: str) -> Path:
        return shard.folder / file_name(name, shard.name)

    def _opened(self, shard: StoredShard) -> dict[str, memoryview]:
        views = {}
        for name in self.names:
            file, shape = map_embeddings(path := self._path(shard, name)), (shard.images, *self._rows[name])
            if (file.shape, file.dtype) != (shape, DTYPE):
                raise ArtifactError(
                    f"{path} has {file.dtype} {file.shape}, but the manifest says float16 {shape}: run embed_clip "
                    "again."
                )
            views[name] = file.content[file.start :]
        return views

    @property
    def captions(self) -> list[str | None]:
        """The caption of each row; None where the image has no caption: its `text` and `encoding` are zero."""
        return self._index.texts("caption")

    def __getitems__(self, rows: Rows, names: Sequence[str] = ("image",)) -> dict[str, NDArray[np.float16]]:
        """Return some rows, in the order of `rows`: `image` (N, D), `text` (N, D), `encoding` (N, L, W), as requested.

        Raises:
            IndexError: a row is out of range.
            ArtifactError: a part has no such embeddings, or their bytes have changed; the message names shard and key.
        """
        numbers, shards, inside = self._located(rows)
        result = {}
        for name in names:
            if name not in self.names:
                raise ArtifactError(f"the embeddings of {', '.join(self.sources)} have no {name}: {_HINT[name]}")
            values = np.empty((len(numbers), *self._rows[name]), dtype=DTYPE)
            self._fill(values, [self._views[name][shard] for shard in shards.tolist()], inside)
            self._check(COLUMNS[name], numbers, np.arange(len(numbers)), values[None], f"{name} embedding", name)
            result[name] = values
        return result


def no_embeddings(parts: Sequence[str], root: Path = EMBEDDING_PARTS) -> bool:
    """Return whether all parts lack embeddings because there is no CLIP."""
    return not any(read_manifest(root / part, KIND)["clip"] for part in parts)


_HINT = {
    "image": "make them again (`dvc repro embed_clip`).",
    "text": "one of the parts has no captions.",
    "encoding": "set `embed_clip.encodings` to true; parts without captions have none.",
}


def stored(part: str, split: str, root: Path = EMBEDDING_PARTS) -> bool:
    """Return whether the embeddings of a split of a part are stored; otherwise they are computed when needed.

    Raises:
        ArtifactError: the embeddings of the part are missing or damaged; the message names the file.
    """
    return bool(read_manifest(root / part, KIND)["splits"][split]["stored"])


def captioned_parts(parts: Sequence[str], root: Path = EMBEDDING_PARTS) -> list[str]:
    """Return the parts with stored text embeddings: the parts that have captions."""
    return [part for part in parts if "text" in read_manifest(root / part, KIND)["names"]]


def require_same_images(embeddings: EmbeddingShards, images: ImageShards | LatentShards) -> None:
    """Check that row i of the embeddings is of image i, or of the image of latent i.

    Raises:
        ArtifactError: a row is missing, superfluous or at another position (the message names the first one and its
            file), or the images were written again since (the message names the part).
    """
    ours, theirs = embeddings._index.column("key"), images._index.column("key")
    if not ours.equals(theirs):
        pairs = enumerate(zip_longest(embeddings.keys, images.keys))
        row, (one, other) = next((row, pair) for row, pair in pairs if pair[0] != pair[1])
        file = embeddings.file_of(row) if one else redacted(images.file_of(row))
        raise ArtifactError(
            f"{file}: row {row:,} of the embeddings is {one or 'missing'}, but of the images {other or 'missing'}: "
            "open the parts in the same order, or run `dvc repro embed_clip` again."
        )
    for part, source in images.sources.items():
        if embeddings.sources.get(part) != source:
            raise ArtifactError(
                f"the embeddings of `{part}` were made from other images with the same keys: run "
                f"`dvc repro embed_clip@{part}` again."
            )
