"""Read rows of tensors that match the rows of image shards: the base of latents and embeddings."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, read_manifest
from darkroom.data.index import Index, Indexed

_THREADS = 4  # threads that open shards in parallel
_NOT_PICKLED = ("_views", "_digests", "_checked")  # rebuilt in the process that unpickles

Rows = Sequence[int] | NDArray[np.int64]


def mapped(path: Path) -> memoryview:
    """Return the bytes of a file through a memory map that holds no file descriptor: there may be thousands.

    Raises:
        OSError: there is no such file, or it cannot be mapped.
    """
    # Arrow makes the system read ahead what is requested, so one byte is requested, and viewed as the whole file.
    with pa.memory_map(str(path)) as file:
        first, size = file.read_buffer(1), file.size()
    return memoryview(pa.foreign_buffer(first.address, size, first)).cast("B")


class StoredShard(NamedTuple):
    """A shard by its folder and name, and whether it has tensors of mirror images, and of moved ones."""

    folder: Path
    name: str
    images: int
    mirror: bool
    shift: bool


class StoredRows(Indexed):
    """Tensors of one split of some parts, by row, read through memory maps.

    Opening checks each manifest, the SHA-256 and counts of each index, and size and header of each file; it reads no
    tensor, since there may be a terabyte of them. A row is checked against its SHA-256 in the index when it is first
    read by this object in this process. Only the index is kept in memory. Safe to use in forked processes, and to
    pickle.

    sources: for each part, the SHA-256 of the manifest of its image shards.
    """

    # The kind in the manifests, its plural in messages, the stage that makes it, and its folder.
    kind: ClassVar[str]
    plural: ClassVar[str]
    stage: ClassVar[str]
    folder: ClassVar[Path]

    def __init__(self, manifests: Mapping[str, Mapping[str, Any]], split: str, root: Path) -> None:
        """Open the index from the parts' manifests, after `open_parts` has checked that they fit together."""
        self.sources: dict[str, str] = {part: manifest["shards"] for part, manifest in manifests.items()}
        self._shards = [
            StoredShard(
                root / part / split,
                entry["name"],
                entry["images"],
                mirror=bool(manifest.get("mirror")),
                shift=bool(manifest.get("shift")) and split == "train",
            )
            for part, manifest in manifests.items()
            for entry in manifest["splits"][split]["shards"]
        ]
        self._firsts = np.concatenate([[0], np.cumsum([shard.images for shard in self._shards], dtype=np.int64)])
        folders = {root / part / split: manifest["splits"][split] for part, manifest in manifests.items()}
        self._index = Index(folders)

    @staticmethod
    def _alike(manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata that all parts must share, by plural nouns for messages; None matches any value."""
        raise NotImplementedError

    def _path(self, shard: StoredShard, name: str) -> Path:
        """Return the file of a shard that holds the tensor `name`."""
        raise NotImplementedError

    def _opened(self, shard: StoredShard) -> dict[str, memoryview]:
        """Return the bytes of the rows of each tensor of a shard, after checking the headers of its files."""
        raise NotImplementedError

    def _map(self) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            opened = list(pool.map(self._opened, self._shards))
        names = dict.fromkeys(name for each in opened for name in each)
        self._views: dict[str, list[Any]] = {name: [each.get(name) for each in opened] for name in names}
        self._digests: dict[str, NDArray[np.uint8]] = {}
        self._checked: dict[str, NDArray[np.bool_]] = {}

    def _load_digests(self, *columns: str) -> None:
        self._index.load(*columns)
        for column in columns:
            self._digests[column] = self._index.digests(column)
            self._checked[column] = np.zeros(len(self), dtype=bool)

    @classmethod
    def open_parts(cls, parts: Sequence[str], split: str, root: Path | None = None) -> Self:
        """Open one split ("train", "val" or "test") of some parts; rows come in the order of `parts`.

        `root` has a folder for each part; None: that of the project.

        Raises:
            ArtifactError: a file is missing or damaged, or the split is not stored; two parts differ in what all must
                share. The message names part or file.
        """
        root = cls.folder if root is None else root
        manifests = {part: read_manifest(root / part, cls.kind) for part in parts}
        if not manifests:
            raise ArtifactError("no part was requested: add at least one under `parts` in params.yaml.")
        first, *others = manifests
        for part in others:
            theirs = cls._alike(manifests[part])
            for name, fact in cls._alike(manifests[first]).items():
                if theirs[name] != fact and None not in (fact, theirs[name]):
                    raise ArtifactError(
                        f"the {cls.plural} of `{first}` and `{part}` have different {name} ({fact} and {theirs[name]})"
                        f": run `dvc repro {cls.stage}` again."
                    )
        return cls(manifests, split, root)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def file_of(self, row: int, name: str = "image") -> str:
        """Return the path of the file that holds a row of the tensor `name`."""
        return str(self._path(self._shards[int(np.searchsorted(self._firsts, row, side="right")) - 1], name))

    def _located(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows, the shard of each, and its row within the shard. Raises IndexError."""
        numbers = np.asarray(rows, dtype=np.int64)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise IndexError(f"rows {numbers.min()} to {numbers.max()} are out of range: there are {len(self)} rows")
        shards = np.searchsorted(self._firsts, numbers, side="right") - 1
        return numbers, shards, numbers - self._firsts[shards]

    @staticmethod
    def _fill(values: NDArray[Any], views: Iterable[memoryview], inside: NDArray[np.int64]) -> None:
        """Copy rows into `values`, each from a view at its row within the shard.

        Slices of bytes cost the same for any number of shards: NumPy's indexing needs a call for each shard, and a
        second copy to restore the order of the rows.
        """
        flat: Any = values.reshape(-1).view(np.uint8)
        target, size, at = memoryview(flat), values[0].nbytes if len(values) else 0, 0
        for view, start in zip(views, (inside * size).tolist(), strict=True):
            target[at : at + size] = view[start : start + size]
            at += size

    def _check(
        self,
        column: str,
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
        tensors: NDArray[Any],
        noun: str,
        name: str = "image",
    ) -> None:
        """Check those rows of a column of the index that were not read before in this process.

        `places` are those of `rows`, (N,), that are checked; the hash covers one of their `tensors`, (K, N, ...), after
        the other. For the message, `noun` says what a row is, and `name` is the tensor whose file it names.
        """
        if column not in self._digests:
            self._load_digests(column)
        checked = self._checked[column]
        for place in places[~checked[rows[places]]].tolist():
            row = int(rows[place])
            digest = hashlib.sha256(b"".join(values.data for values in tensors[:, place])).digest()
            if digest != self._digests[column][row].tobytes():
                path = Path(self.file_of(row, name))
                raise ArtifactError(
                    f"{path}: the {noun} of the image {self.keys_of([row])[0]} is corrupted (its sha256 differs from "
                    f"the index): delete the shard and restore it with `dvc checkout {path.parent}`, or run "
                    f"{self.stage} again."
                )
            checked[row] = True

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()
