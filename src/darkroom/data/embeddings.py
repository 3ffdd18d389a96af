"""Reads stored embeddings by row number; rows are those of the image shards."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, read_manifest
from darkroom.data.embedding_file import COLUMNS, DTYPE, KIND, PREFIXES, file_name, map_embeddings, row_shapes
from darkroom.data.index import EMBEDDINGS, Index, Indexed
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.data.together import require_fit
from darkroom.remote import redacted

EMBEDDING_PARTS = Path("data/embeddings")
_THREADS = 4  # threads that open shards in parallel
_NOT_PICKLED = ("_contents", "_sha256", "_checked")  # made anew in the process that unpickles


class _Shard(NamedTuple):
    """The files of a shard, and their entry in the manifest."""

    folder: Path
    name: str
    images: int
    sha256: Mapping[str, str]

    def path(self, what: str) -> Path:
        return self.folder / file_name(what, self.name)


class EmbeddingShards(Indexed):
    """Embeddings of one split of some parts, by row, read through memory maps.

    Opening checks each manifest, the SHA-256 and counts of each index, and size and header of each file; it reads no
    embedding. A row is checked against its SHA-256 in the index when it is first read by this object in this process.
    Safe to use in forked processes, and to pickle.

    clip: the fingerprint of the CLIP that made the embeddings, the same for all parts.
    normalised: whether embeddings of images and texts have length 1.
    dim: the length of an embedding.
    encoding_shape: (L, W) of the encoding of a text; None: no encodings are stored.
    names: the kinds that every part has: image, text, encoding.
    sources: for each part, the SHA-256 of the manifest of its image shards.
    """

    def __init__(self, manifests: Mapping[str, Mapping[str, Any]], split: str, root: Path) -> None:
        """Open shards from the parts' manifests, after `open_parts` has checked that they fit together."""
        first = next(iter(manifests.values()))
        self.clip: str = first["clip"]
        self.normalised: bool = first["normalised"]
        self.dim: int = first["dim"]
        self.names = tuple(name for name in PREFIXES if all(name in each["names"] for each in manifests.values()))
        shape = next((each["encoding_shape"] for each in manifests.values() if each["encoding_shape"]), None)
        self.encoding_shape: tuple[int, int] | None = tuple(shape) if shape and "encoding" in self.names else None
        self.sources: dict[str, str] = {part: manifest["shards"] for part, manifest in manifests.items()}
        self._rows = row_shapes(self.dim, self.encoding_shape)
        folders = {root / part / split: manifest["splits"][split] for part, manifest in manifests.items()}
        self._shards = [
            _Shard(folder, entry["name"], entry["images"], entry["sha256"])
            for folder, metadata in folders.items()
            for entry in metadata["shards"]
        ]
        self._firsts = np.concatenate([[0], np.cumsum([shard.images for shard in self._shards], dtype=np.int64)])
        self._index = Index(folders, EMBEDDINGS)
        self._map()

    def _map(self) -> None:
        """Map the files and check their headers."""

        def opened(shard: _Shard) -> dict[str, memoryview]:
            return {name: _open(shard, name, (shard.images, *self._rows[name])) for name in self.names}

        with ThreadPoolExecutor(_THREADS) as pool:
            self._contents = list(pool.map(opened, self._shards))
        self._sha256: dict[str, NDArray[np.uint8]] = {}
        self._checked = {name: np.zeros(len(self), dtype=bool) for name in self.names}

    @classmethod
    def open_parts(
        cls, parts: Sequence[str], split: str, root: Path = EMBEDDING_PARTS, shards_root: Path | None = None
    ) -> "EmbeddingShards":
        """Open one split ("train", "val" or "test") of some parts; rows come in the order of `parts`.

        Args:
            parts: the names of the parts.
            split: "train", "val" or "test".
            root: the folder with a folder of embeddings for each part.
            shards_root: the folder of the image shards (data/shards): each part must have been made from them. None:
                not checked.

        Raises:
            ArtifactError: a file is missing or damaged, the split is not stored, the parts come from different CLIPs
                or are normalised differently, or the image shards have changed; the message names part or file.
        """
        manifests = {part: read_manifest(root / part, KIND) for part in parts}
        require_fit("embeddings", manifests, _alike, shards_root, "embed_clip")
        for part, manifest in manifests.items():
            if not manifest["splits"][split]["stored"]:
                raise ArtifactError(
                    f"{root / part} does not hold the embeddings of the split {split}, which `embed_clip.store` leaves "
                    "out: name it there, or compute them with models/clip as they are needed."
                )
        return cls(manifests, split, root)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def captions(self) -> list[str | None]:
        """The caption of each row; None where the image has no caption: its `text` and `encoding` are zero."""
        return self._index.texts("caption")

    def __getitems__(
        self, rows: Sequence[int] | NDArray[np.int64], names: Sequence[str] = ("image",)
    ) -> dict[str, NDArray[np.float16]]:
        """Return some rows, in the order of `rows`: `image` (N, D), `text` (N, D), `encoding` (N, L, W), as requested.

        Raises:
            IndexError: a row is out of range.
            ArtifactError: a part has no such embeddings, or their bytes have changed; the message names shard and key.
        """
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(f"rows {wanted.min()} to {wanted.max()} of {len(self)}")
        shards = np.searchsorted(self._firsts, wanted, side="right") - 1
        inside = (wanted - self._firsts[shards]).tolist()
        found = {}
        for name in names:
            if name not in self.names:
                raise ArtifactError(f"the embeddings of {', '.join(self.sources)} have no {name}: {_HINT[name]}")
            values = np.empty((len(wanted), *self._rows[name]), dtype=DTYPE)
            flat: Any = values.reshape(-1).view(np.uint8)
            target, size = memoryview(flat), int(np.prod(self._rows[name])) * DTYPE.itemsize
            contents = [self._contents[shard][name] for shard in shards.tolist()]
            # Slices of bytes, as in latents.py: NumPy's indexing needs a call for each shard, and a second copy.
            for at, (content, place) in enumerate(zip(contents, inside, strict=True)):
                target[at * size : (at + 1) * size] = content[place * size : (place + 1) * size]
            self._check(name, wanted, values)
            found[name] = values
        return found

    def _check(self, name: str, rows: NDArray[np.int64], values: NDArray[np.float16]) -> None:
        """Check the rows that were not read before in this process against their SHA-256."""
        checked = self._checked[name]
        if checked[rows].all():
            return
        if name not in self._sha256:
            self._sha256[name] = self._index.digests(COLUMNS[name])
        for place in np.flatnonzero(~checked[rows]).tolist():
            row = int(rows[place])
            if hashlib.sha256(values[place].data).digest() != self._sha256[name][row].tobytes():
                path = self.shard_of(row, name)
                raise ArtifactError(
                    f"{path}: the {name} embedding of the image {self.keys_of([row])[0]} is corrupted (its sha256 is "
                    f"not that of the index): delete the shard and restore it with `dvc checkout {path.parent}`, or "
                    "run embed_clip again."
                )
            checked[row] = True

    def shard_of(self, row: int, name: str = "image") -> Path:
        """Return the file that holds a row."""
        return self._shards[int(np.searchsorted(self._firsts, row, side="right")) - 1].path(name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()


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
        where = embeddings.shard_of(row) if one else redacted(images.file_of(row))
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


def _alike(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that all parts must share, None where a part has no such entry."""
    return {
        "CLIPs": manifest["clip"],
        "normalisations": manifest["normalised"],
        "dimensions": manifest["dim"],
        "shapes of encodings": manifest["encoding_shape"],
    }


def _open(shard: _Shard, name: str, shape: tuple[int, ...]) -> memoryview:
    """Return the bytes of the rows of a file."""
    path = shard.path(name)
    file = map_embeddings(path)
    if (file.shape, file.dtype) != (shape, DTYPE):
        raise ArtifactError(
            f"{path} holds {file.dtype} {file.shape}, and the manifest says float16 {shape}: run embed_clip again."
        )
    return file.content[file.start :]
