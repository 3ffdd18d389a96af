"""Write images as webdataset tars in the layout of img2dataset, byte for byte the same for the same samples.

A folder holds, for each shard, `00000.tar` with KEY.cls, KEY.json, KEY.png (or .webp, .jpg) and KEY.txt, and
`00000_stats.json`, written last; and `index.parquet` with a row for each image. KEY.cls holds the label, KEY.txt the
caption; an image without one has no such member. Any image is one read, since the index holds its offset and size.
"""

import json
import re
import tarfile
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import write_json
from darkroom.artifacts.manifest import sha256_bytes, sha256_file
from darkroom.data.images import EXTENSION, encode
from darkroom.data.index import IMAGES, IndexWriter
from darkroom.data.sample import Sample
from darkroom.errors import DarkroomError

KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")  # with its extension shorter than the 100 bytes of a USTAR name


def index_row(
    key: str, size: tuple[int, int], original_size: tuple[int, int], label: str | None, caption: str | None
) -> dict[str, Any]:
    """Return an image's row of the index without location and hash; sizes are width and height in pixels."""
    names = "width", "height", "original_width", "original_height"
    sizes = dict(zip(names, (*size, *original_size), strict=True))
    return {"key": key, "label": label, "caption": caption, **sizes}


class ShardWriter:
    """Write one stream of samples as numbered shards. Samples are written at once; no shard is held in memory.

    Call `append` for each sample, then `close`. The caller ensures that keys are unique.
    """

    def __init__(self, folder: Path, shard_size: int, format: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._shard_size, self._format = folder, shard_size, format
        self._index = IndexWriter(folder, IMAGES)
        self._entries: list[dict[str, Any]] = []
        self._tar: tarfile.TarFile | None = None
        self._rows: list[dict[str, Any]] = []

    def append(self, row: Mapping[str, Any], data: bytes) -> None:
        """Append an image that is already encoded in the format of this writer; `row` is `index_row` of it.

        Raises:
            DarkroomError: the key is not allowed.
        """
        key, label, caption = row["key"], row["label"], row["caption"]
        if not KEY.fullmatch(key):
            raise DarkroomError(
                f"the key {key!r} cannot name a file in a shard: use 1 to 80 letters, digits, `_` and `-`."
            )
        if self._tar is None:
            path = self._folder / f"{len(self._entries):05d}.tar"
            self._tar = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115, closed with the shard
        metadata = {**row, "sha256": sha256_bytes(data)}
        image = EXTENSION[self._format]
        members = {"json": json.dumps(metadata, sort_keys=True, ensure_ascii=False).encode(), image: data}
        if label is not None:
            members["cls"] = label.encode()
        if caption is not None:
            members["txt"] = caption.encode()
        offsets = {name: _append(self._tar, f"{key}.{name}", members[name]) for name in sorted(members)}
        index = {"offset": offsets[image], "size": len(data), "sha256": bytes.fromhex(metadata["sha256"])}
        self._rows.append({**metadata, **index})
        if len(self._rows) == self._shard_size:
            self._finish()

    def close(self) -> dict[str, Any]:
        """Finish the last shard and return entries of the manifest.

        Returns:
            shards: for each shard `name`, `images`, `bytes` and `sha256` of the tar; index_sha256.
        """
        self._finish()
        return {"shards": self._entries, "index_sha256": self._index.close()}

    def _finish(self) -> None:
        if self._tar is None:
            return
        self._tar.close()
        self._tar = None
        name = f"{len(self._entries):05d}"
        tar = self._folder / f"{name}.tar"
        entry = {"name": name, "images": len(self._rows), "bytes": tar.stat().st_size, "sha256": sha256_file(tar)}
        self._index.add(self._rows)
        # Last: as in img2dataset, a shard with stats is complete.
        write_json(self._folder / f"{name}_stats.json", {key: entry[key] for key in entry if key != "name"})
        self._entries.append(entry)
        self._rows = []


def _append(tar: tarfile.TarFile, name: str, data: bytes) -> int:
    """Append a member without time or owner; return the offset of its first byte."""
    member = tarfile.TarInfo(name)  # TarInfo's own defaults: mtime 0, uid and gid 0, no names, mode 0644
    member.size = len(data)
    offset = tar.offset + tarfile.BLOCKSIZE  # in USTAR a header is one block
    tar.addfile(member, BytesIO(data))
    return offset


def write_shards(folder: Path, samples: Iterable[Sample], shard_size: int, format: str) -> dict[str, Any]:
    """Write samples as shards of at most `shard_size` images into `folder`; return entries of the manifest.

    The images are stored unchanged, so all have one size and mode. `format` is png or webp, both lossless. The caller
    writes the manifest, with the returned entries and (C, H, W) under `image_shape`: then `ImageShards.open_folder`
    reads the folder.

    Raises:
        DarkroomError: a key is not allowed, or an image differs in size or mode from those before it.
    """
    writer, pixels = ShardWriter(folder, shard_size, format), None
    for sample in samples:
        before, pixels = pixels, (sample.image.mode, sample.image.size)
        if before not in (None, pixels):
            raise DarkroomError(f"the image {sample.key} has mode and size {pixels}, but earlier images have {before}.")
        size = sample.image.size
        row = index_row(sample.key, size, size, sample.label, sample.caption)
        writer.append(row, encode(sample.image, format))
    return writer.close()
