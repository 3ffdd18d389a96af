"""Read images of shards by row number: the rows of a split, part after part, in the order of the index."""

import errno
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest
from darkroom.data.damage import DamageError
from darkroom.data.decoding import open_image
from darkroom.data.images import MODES, ImageSpec, decode, to_array
from darkroom.data.index import Index, Indexed
from darkroom.data.layout import KIND, SHARDS
from darkroom.data.preparing import Preparation, prepare
from darkroom.data.tar_files import OpenFiles, TarFiles
from darkroom.remote import is_remote, local_path, redacted

_OPEN = 16  # maximum number of open tars where some are remote: an open tar stays in the cache


@dataclass(frozen=True)
class Shard:
    """A shard of a dataset: its rows are [first, first + images).

    tar: the path or URL of the tar.
    sha256: the hash of the tar.
    preparation: of images on reading, if the shard is indexed in place; None: stored images are prepared.
    """

    folder: Path
    name: str
    first: int
    images: int
    sha256: str
    tar: str
    preparation: Preparation | None

    @property
    def path(self) -> Path:
        """The path of a local tar."""
        return local_path(self.tar)


class ImageShards(Indexed):
    """Images by row, stored or indexed in place. Each image is one `pread`, checked against its SHA-256.

    Opening checks the kind of the manifests, the hash and row count of each index, and the size of each local tar; it
    reads no tar. Only the index is kept in memory. Safe to use in forked processes and threads, and to pickle.

    image_shape: (C, H, W) of every image.
    shards: the shards in row order.
    sources: for each part, or for the name of the folder, the SHA-256 of its manifest.
    mirrors: whether mirror images are valid training data, bool (N,).
    """

    def __init__(
        self,
        folders: Mapping[Path, Mapping[str, Any]],
        image_shape: tuple[int, int, int],
        preparation: Mapping[Path, Preparation] | None = None,
    ) -> None:
        """Open shards.

        `folders` has for each folder the entries `shards` and `index_sha256` of its manifest, `image_shape` is (C, H,
        W) of every image, and `preparation` has that of each folder whose images are prepared on reading.
        """
        self.image_shape = image_shape
        self.shards: list[Shard] = []
        self.sources: dict[str, str] = {}
        first = 0
        for folder, metadata in folders.items():
            for entry in metadata["shards"]:
                tar = entry.get("tar", f"{folder / entry['name']}.tar")
                shard = Shard(
                    folder, entry["name"], first, entry["images"], entry["sha256"], tar, (preparation or {}).get(folder)
                )
                _check_size(shard, entry["bytes"])
                self.shards.append(shard)
                first += entry["images"]
        self.mirrors = np.zeros(first, dtype=bool)
        self._index = Index(folders)
        self._load_index()
        self._tars = TarFiles(
            [shard.tar for shard in self.shards], {shard.tar: shard.sha256 for shard in self.shards if _remote(shard)}
        )
        self._files = OpenFiles(self._tars, _OPEN if any(map(_remote, self.shards)) else None)

    def _load_index(self) -> None:
        self._rows = sum(shard.images for shard in self.shards)
        self._index.load("offset", "size", "sha256")
        self._offset, self._size = self._index.numbers("offset"), self._index.numbers("size")
        self._sha256 = self._index.digests("sha256")
        self._firsts = np.array([shard.first for shard in self.shards], dtype=np.int64)

    @classmethod
    def open_parts(cls, parts: Sequence[str], split: str, root: Path = SHARDS) -> "ImageShards":
        """Open one split ("train", "val" or "test") of some parts; rows come in the order of `parts`.

        Raises:
            ArtifactError: a part is missing or damaged, or its images have another size or other channels than those
                of another part; the message names the file.
        """
        manifests = {part: read_manifest(root / part, KIND) for part in parts}
        spec = same_spec(manifests)
        folders = {root / part / split: manifest["splits"][split] for part, manifest in manifests.items()}
        in_place = {root / part / split: manifest for part, manifest in manifests.items() if manifest["in_place"]}
        reader = cls(folders, spec.shape, {folder: Preparation.of(manifest) for folder, manifest in in_place.items()})
        reader.sources = {part: manifest_hash(root / part) for part in manifests}
        images = [manifest["splits"][split]["images"] for manifest in manifests.values()]
        reader.mirrors = np.repeat([bool(manifest["mirror"]) for manifest in manifests.values()], images)
        return reader

    @classmethod
    def open_folder(cls, folder: Path, kind: str = "samples") -> "ImageShards":
        """Open shards that lie directly in `folder`, whose manifest holds `image_shape` (C, H, W) and `shards`.

        Raises:
            ArtifactError: missing or damaged; the message names the file.
        """
        manifest = read_manifest(folder, kind)
        channels, height, width = manifest["image_shape"]
        reader = cls({folder: manifest}, (channels, height, width))
        reader.sources = {folder.name: manifest_hash(folder)}
        return reader

    def leave_out(self, rows: Sequence[int]) -> None:
        """Drop some rows; the others keep their order and are renumbered."""
        if not len(rows):
            return
        kept = np.ones(len(self), dtype=bool)
        kept[list(rows)] = False
        counts = np.array([kept[each.first : each.first + each.images].sum() for each in self.shards], dtype=np.int64)
        places = zip(self.shards, (np.cumsum(counts) - counts).tolist(), counts.tolist(), strict=True)
        self.shards = [replace(shard, first=first, images=images) for shard, first, images in places]
        self.mirrors = self.mirrors[kept]
        self._index.keep(kept)
        self._load_index()

    def __len__(self) -> int:
        return self._rows

    @property
    def captions(self) -> list[str | None]:
        """The caption of each row; None where the image has none."""
        return self._index.texts("caption")

    @property
    def caption_column(self) -> pa.ChunkedArray:
        """`captions` as they are stored."""
        return self._index.column("caption")

    @property
    def remote(self) -> bool:
        """Whether a shard lies behind a URL."""
        return any(map(_remote, self.shards))

    def __getitem__(self, row: int) -> NDArray[np.uint8]:
        """Return the image of a row, uint8 (C, H, W).

        Raises:
            IndexError: there is no such row.
            ArtifactError: the bytes in the tar have changed; the message names shard and key.
        """
        if not 0 <= row < self._rows:
            raise IndexError(f"row {row} is out of range: there are {self._rows} rows")
        number = int(np.searchsorted(self._firsts, row, side="right")) - 1
        offset, size = int(self._offset[row]), int(self._size[row])
        try:
            data = self._files.read(number, offset, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # the disk is full, which the runner reports
            raise self._fault(number, row, str(error)) from error
        if hashlib.sha256(data).digest() != self._sha256[row].tobytes():
            raise self._fault(number, row, "its sha256 differs from the index")
        image = self._decoded(number, row, data)
        if image.shape != self.image_shape:
            raise self._fault(number, row, f"its shape is {image.shape}, but the manifest says {self.image_shape}")
        return image

    def _decoded(self, number: int, row: int, data: bytes) -> NDArray[np.uint8]:
        rules = self.shards[number].preparation
        if rules is None:
            return decode(data, MODES[self.image_shape[0]])
        try:
            return to_array(prepare(open_image(data, rules.max_pixels), rules, self._index.column("key")[row].as_py()))
        except DamageError as error:  # it could be read when it was ingested, by another version of the library
            shard, key = self.shards[number], self.keys_of([row])[0]
            raise ArtifactError(
                f"{redacted(shard.tar)}: the image {key} was readable when it was indexed, but is not now, with the "
                f"same bytes ({error}): install the pinned versions again (`make`), or run "
                f"`dvc repro --force ingest@{shard.folder.parent.name}` to list it."
            ) from error

    def __getitems__(self, rows: Sequence[int]) -> NDArray[np.uint8]:
        """Return the images of some rows, uint8 (N, C, H, W), in the order of `rows`. Raises as `__getitem__`."""
        images = np.empty((len(rows), *self.image_shape), dtype=np.uint8)
        for place, row in enumerate(rows):
            images[place] = self[int(row)]
        return images

    def batches(self, size: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the images of all rows in order, uint8 (N, C, H, W), in batches of `size`; the last may be smaller."""
        for first in range(0, len(self), size):
            yield self.__getitems__(range(first, min(first + size, len(self))))

    def file_of(self, row: int) -> str:
        """Return the path or URL of the tar that holds a row, or that is nearest before it."""
        return next(shard.tar for shard in reversed(self.shards) if shard.first <= row)

    def texts(self, shard: Shard) -> list[dict[str, Any]]:
        """Return `key`, `label`, `caption` and `group` of each row of a shard."""
        return self._index.rows(["key", "label", "caption", "group"], shard.first, shard.images)

    def prefetch(self, shards: Iterable[Shard]) -> None:
        """Download the remote shards among `shards` in the background, in this order."""
        self._tars.remote.prefetch([shard.tar for shard in shards if _remote(shard)])

    def _fault(self, number: int, row: int, problem: str) -> ArtifactError:
        shard, key = self.shards[number], self._index.column("key")[row].as_py()
        if _remote(shard):  # the shard's sha256 was right when it was fetched
            return ArtifactError(
                f"{redacted(shard.tar)}: the image {key} cannot be read from the cache ({problem}): delete "
                f"{self._tars(number)}, and it is downloaded again."
            )
        return ArtifactError(f"{redacted(shard.tar)}: the image {key} is corrupted ({problem}): {_remedy(shard)}.")


def same_spec(manifests: Mapping[str, Mapping[str, Any]]) -> ImageSpec:
    """Return the specification that the images of some parts share, from their manifests: size and channels.

    File formats may differ, since each image is decoded by its content; then the format is "mixed".

    Raises:
        ArtifactError: two parts differ (the message names them), or there is no part.
    """
    specs = {part: ImageSpec.of(manifest) for part, manifest in manifests.items()}
    if not specs:
        raise ArtifactError("no part was requested: add at least one under `parts` in params.yaml.")
    first, *others = specs
    for part in others:
        if specs[part].shape != specs[first].shape:
            raise ArtifactError(
                f"the parts `{first}` and `{part}` differ: {specs[first].metadata()} and "
                f"{specs[part].metadata()}. Ingest both with the same settings (`dvc repro ingest`)."
            )
    formats = {spec.format for spec in specs.values()}
    return specs[first] if len(formats) == 1 else replace(specs[first], format="mixed")


def _remote(shard: Shard) -> bool:
    return is_remote(shard.tar)


def _check_size(shard: Shard, size: int) -> None:
    if _remote(shard):
        return
    actual = shard.path.stat().st_size if shard.path.is_file() else None
    if actual == size:
        return
    problem = "is missing" if actual is None else f"has {actual} bytes, but the manifest says {size}"
    raise ArtifactError(f"{shard.path} {problem}: {_remedy(shard)}.")


def _remedy(shard: Shard) -> str:
    if shard.preparation is None:
        return f"delete and restore it with `dvc checkout {shard.folder}`, or rerun the stage that makes it"
    part = shard.folder.parent.name
    return (
        f"it changed since the part `{part}` was indexed in place: put the old file back, or ingest it again with `dvc "
        f"repro ingest@{part}`"
    )
