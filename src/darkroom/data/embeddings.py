"""Reads stored embeddings by row number; rows are those of the image shards."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, read_manifest
from darkroom.data.embedding_file import COLUMNS, DTYPE, KIND, PREFIXES, file_name, map_embeddings, row_shapes
from darkroom.data.index import EMBEDDINGS
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.data.rows import Rows, StoredRows, StoredShard
from darkroom.remote import redacted

EMBEDDING_PARTS = Path("data/embeddings")


class EmbeddingShards(StoredRows):
    """Embeddings of one split of some parts, by row; see `StoredRows`.

    clip: the fingerprint of the CLIP that made the embeddings, the same for all parts.
    normalised: whether embeddings of images and texts have length 1.
    dim: the length of an embedding.
    encoding_shape: (L, W) of the encoding of a text; None: no encodings are stored.
    names: the kinds that every part has: image, text, encoding.
    sources: for each part, the SHA-256 of the manifest of its image shards.
    """

    kind, plural, stage, folder, schema = KIND, "embeddings", "embed_clip", EMBEDDING_PARTS, EMBEDDINGS

    def __init__(self, manifests: Mapping[str, Mapping[str, Any]], split: str, root: Path) -> None:
        """Open shards from the parts' manifests, after `open_parts` has checked that they fit together."""
        for part, manifest in manifests.items():
            if not manifest["splits"][split]["stored"]:
                raise ArtifactError(
                    f"{root / part} does not hold the embeddings of the split {split}, which `embed_clip.store` leaves "
                    "out: name it there, or compute them with models/clip as they are needed."
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
                    f"{path} holds {file.dtype} {file.shape}, and the manifest says float16 {shape}: run embed_clip "
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
        wanted, shards, inside = self._located(rows)
        found = {}
        for name in names:
            if name not in self.names:
                raise ArtifactError(f"the embeddings of {', '.join(self.sources)} have no {name}: {_HINT[name]}")
            values = np.empty((len(wanted), *self._rows[name]), dtype=DTYPE)
            self._fill(values, [self._views[name][shard] for shard in shards.tolist()], inside)
            self._check(COLUMNS[name], wanted, np.arange(len(wanted)), values[None], f"{name} embedding", name)
            found[name] = values
        return found


def no_embeddings(parts: Sequence[str], root: Path = EMBEDDING_PARTS) -> bool:
    """Return whether no part has embeddings, because there is no CLIP."""
    return not any(read_manifest(root / part, KIND)["clip"] for part in parts)


_HINT = {
    "image": "make them again (`dvc repro embed_clip`).",
    "text": "a part has no image with a caption.",
    "encoding": "set `embed_clip.encodings` to true; a part without captions has none either.",
}


def stored(part: str, split: str, root: Path = EMBEDDING_PARTS) -> bool:
    """Return whether the embeddings of a split of a part are stored; else they are computed when they are needed.

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
        where = embeddings.file_of(row) if one else redacted(images.file_of(row))
        raise ArtifactError(
            f"{where}: row {row:,} of the embeddings is {one or 'missing'}, and of the images {other or 'missing'}: "
            "open the parts in the same order, or make the embeddings again (`dvc repro embed_clip`)."
        )
    for part, source in images.sources.items():
        if embeddings.sources.get(part) != source:
            raise ArtifactError(
                f"the embeddings of `{part}` were made from other images with the same keys: make them again "
                f"(`dvc repro embed_clip@{part}`)."
            )
