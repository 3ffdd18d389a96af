"""Reads images of shards by row number: the rows of a split, of one part after the other, in the order of the index."""

import hashlib
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, check_file, manifest_hash, read_manifest
from darkroom.data.files import OpenFiles
from darkroom.data.images import MODES, ImageSpec, decode
from darkroom.data.index import IMAGES, Index
from darkroom.data.layout import KIND, SHARDS

_HEADER = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Shard:
    """A shard among those that are open: its rows are [first, first + images). `sha256` is the tar's."""

    folder: Path
    name: str
    first: int
    images: int
    sha256: str

    @property
    def path(self) -> Path:
        """The tar."""
        return self.folder / f"{self.name}.tar"


class ImageShards:
    """Stored images by row. Every image is one `pread`, checked against the sha256 in the index.

    Opening checks the manifests' kind, the hash and row count of each index, and the size of each tar; it reads no tar.
    In memory stands the index alone. Safe to use in forked processes and threads, and to pickle.

    image_shape: (C, H, W) of every image.
    shards: the shards in row order.
    sources: for each part, or for the folder's name, the sha256 of its manifest.
    mirrors: for each row whether a mirror image is as true as the image, (N,).
    """

    def __init__(self, folders: Mapping[Path, Mapping[str, Any]], image_shape: tuple[int, int, int]) -> None:
        """Open shards: for each folder of tars what the manifest says of them, `shards` and `index_sha256`."""
        self.image_shape = image_shape
        self.shards: list[Shard] = []
        self.sources: dict[str, str] = {}
        first = 0
        for folder, facts in folders.items():
            for entry in facts["shards"]:
                self.shards.append(Shard(folder, entry["name"], first, entry["images"], entry["sha256"]))
                _check_size(self.shards[-1].path, entry["bytes"])
                first += entry["images"]
        self._rows = first
        self.mirrors = np.zeros(first, dtype=bool)
        self._index = Index(folders, IMAGES)
        self._offset, self._size = self._index.numbers("offset"), self._index.numbers("size")
        self._sha256 = self._index.digests("sha256")
        self._firsts = np.array([shard.first for shard in self.shards], dtype=np.int64)
        self._files = OpenFiles([shard.path for shard in self.shards])

    @classmethod
    def open_parts(cls, parts: Sequence[str], split: str, root: Path = SHARDS) -> "ImageShards":
        """Open one split ("train", "val" or "test") of some parts; rows come in the order of `parts`.

        Raises:
            ArtifactError: a part is missing or damaged, or its images differ from another part's; names the file.
        """
        manifests = {part: read_manifest(root / part, KIND) for part in parts}
        spec = same_spec(manifests)
        folders = {root / part / split: manifest["splits"][split] for part, manifest in manifests.items()}
        reader = cls(folders, spec.shape)
        reader.sources = {part: manifest_hash(root / part) for part in manifests}
        images = [manifest["splits"][split]["images"] for manifest in manifests.values()]
        reader.mirrors = np.repeat([bool(manifest["mirror"]) for manifest in manifests.values()], images)
        return reader

    @classmethod
    def open_folder(cls, folder: Path, kind: str = "samples") -> "ImageShards":
        """Open shards that lie directly in `folder`, whose manifest holds `image_shape` (C, H, W) and `shards`.

        Raises:
            ArtifactError: missing or damaged; names the file.
        """
        manifest = read_manifest(folder, kind)
        channels, height, width = manifest["image_shape"]
        reader = cls({folder: manifest}, (channels, height, width))
        reader.sources = {folder.name: manifest_hash(folder)}
        return reader

    def __len__(self) -> int:
        return self._rows

    @property
    def keys(self) -> list[str]:
        """The key of each row."""
        return [str(key) for key in self._index.texts("key")]

    @property
    def labels(self) -> list[str | None]:
        """The name of each row's class; None where the image has no label."""
        return self._index.texts("label")

    @property
    def captions(self) -> list[str | None]:
        """The caption of each row; None where the image has none."""
        return self._index.texts("caption")

    @property
    def label_column(self) -> pa.ChunkedArray:
        """`labels` as they are stored: a million of them as a list of Python's take a while and 70 MB."""
        return self._index.column("label")

    def keys_of(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows."""
        return self._index.some("key", rows)

    @property
    def remote(self) -> bool:
        """Whether a shard lies behind a URL."""
        return False

    def prefetch(self, shards: Iterable[Shard]) -> None:
        """Fetch those of some shards that lie behind URLs in the background, in this order."""

    def __getitem__(self, row: int) -> NDArray[np.uint8]:
        """Return the image of a row, uint8 (C, H, W).

        Raises:
            IndexError: there is no such row.
            ArtifactError: its bytes in the tar are not those that were written; names shard and key.
        """
        if not 0 <= row < self._rows:
            raise IndexError(f"row {row} of {self._rows}")
        number = int(np.searchsorted(self._firsts, row, side="right")) - 1
        offset, size = int(self._offset[row]), int(self._size[row])
        try:
            block = self._files.read(number, offset - _HEADER, _HEADER + size)
        except OSError as error:
            raise self._fault(number, row, str(error)) from error
        header, data = block[:_HEADER], block[_HEADER:]
        if hashlib.sha256(data).digest() != self._sha256[row].tobytes():
            raise self._fault(number, row, "its sha256 is not that of the index")
        # Only other readers use the header, but those skip the image in silence where it is damaged.
        if (fault := _header_fault(header)) is not None:
            raise self._fault(number, row, f"its tar header is damaged: {fault}")
        image = decode(data, MODES[self.image_shape[0]])
        if image.shape != self.image_shape:
            raise self._fault(number, row, f"its shape is {image.shape}, and the manifest says {self.image_shape}")
        return image

    def __getitems__(self, rows: Sequence[int]) -> NDArray[np.uint8]:
        """Return the images of some rows, uint8 (N, C, H, W), in the order of `rows`. Raises as `__getitem__`."""
        images = np.empty((len(rows), *self.image_shape), dtype=np.uint8)
        for place, row in enumerate(rows):
            images[place] = self[int(row)]
        return images

    def batches(self, size: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the images of all rows in their order, uint8 (N, C, H, W), `size` at a time, the last fewer."""
        for first in range(0, len(self), size):
            yield self.__getitems__(range(first, min(first + size, len(self))))

    def texts(self, shard: Shard) -> list[dict[str, Any]]:
        """Return `key`, `label` and `caption` of each row of a shard."""
        return self._index.rows(["key", "label", "caption"], shard.first, shard.images)

    def verify(self) -> None:
        """Check every byte of every tar, also of members that are not images. Raises ArtifactError naming the shard."""
        for shard in self.shards:
            check_file(shard.path, shard.sha256)

    def _fault(self, number: int, row: int, what: str) -> ArtifactError:
        path = self.shards[number].path
        return ArtifactError(
            f"{path}: the image {self._index.some('key', [row])[0]} is corrupted ({what}): delete the shard and restore "
            f"it with `dvc checkout {path.parent}`, or run the stage that makes it again."
        )


def same_spec(manifests: Mapping[str, Mapping[str, Any]]) -> ImageSpec:
    """Return what the images of some parts share, from their manifests.

    Raises:
        ArtifactError: two parts differ, or there is no part; names them.
    """
    specs = {part: ImageSpec.of(manifest) for part, manifest in manifests.items()}
    if not specs:
        raise ArtifactError("no part was asked for: name at least one under `parts` in params.yaml.")
    first, *others = specs
    for part in others:
        if specs[part] != specs[first]:
            raise ArtifactError(
                f"the parts `{first}` and `{part}` do not fit together: {specs[first].facts()} and "
                f"{specs[part].facts()}; ingest both with the same settings (`dvc repro ingest`)."
            )
    return specs[first]


def _check_size(path: Path, size: int) -> None:
    found = path.stat().st_size if path.is_file() else None
    if found != size:
        what = "is missing" if found is None else f"has {found} bytes, and the manifest says {size}"
        raise ArtifactError(
            f"{path} {what}: restore it with `dvc checkout {path.parent}`, or run the stage that makes it again."
        )


def _header_fault(header: bytes) -> str | None:
    """Return what is wrong with a member's header, by the checksum in it."""
    try:
        tarfile.TarInfo.frombuf(header, "utf-8", "strict")
    except (tarfile.TarError, UnicodeError) as error:
        return str(error)
    return None
