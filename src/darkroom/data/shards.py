"""Writes images as webdataset tars in the layout of img2dataset, byte for byte the same for the same samples.

A folder holds, for each shard, `00000.tar` with KEY.cls, KEY.json, KEY.png (or .webp) and KEY.txt, the index
`00000.parquet`, and `00000_stats.json`, written last. KEY.cls holds the label's name, KEY.txt the caption; an image
without one has no such member. Any image is one read: its offset and size stand in the index.
"""

import json
import re
import tarfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import write_json
from darkroom.artifacts.hashing import sha256_bytes, sha256_file
from darkroom.data.images import EXTENSION, encode
from darkroom.data.index import IMAGES, write_index
from darkroom.data.sample import Sample
from darkroom.errors import DarkroomError

_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")  # with its extension shorter than the 100 bytes of a USTAR name


class ShardWriter:
    """Writes one stream of samples as numbered shards. Samples go to the disk as they come; no shard is held in memory.

    Use it as `for sample in ...: writer.add(sample)`, then `entries = writer.close()`.
    """

    def __init__(self, folder: Path, shard_size: int, format: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._shard_size, self._format = folder, shard_size, format
        self._entries: list[dict[str, Any]] = []
        self._tar: tarfile.TarFile | None = None
        self._rows: list[dict[str, Any]] = []
        self._last_key = ""
        self._pixels: tuple[str, tuple[int, int]] | None = None

    def add(self, sample: Sample) -> None:
        """Append a sample.

        Raises:
            DarkroomError: its key is not allowed or not above the last one, or its size or mode is not the others'.
        """
        self._check(sample)
        if self._tar is None:
            path = self._folder / f"{len(self._entries):05d}.tar"
            self._tar = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115, closed with the shard
        data = encode(sample.image, self._format)
        width, height = sample.image.size
        facts: dict[str, Any] = {
            "key": sample.key,
            "label": sample.label,
            "caption": sample.caption,
            "width": width,
            "height": height,
            "sha256": sha256_bytes(data),
        }
        image = EXTENSION[self._format]
        members = {"json": json.dumps(facts, sort_keys=True, ensure_ascii=False).encode(), image: data}
        if sample.label is not None:
            members["cls"] = sample.label.encode()
        if sample.caption is not None:
            members["txt"] = sample.caption.encode()
        offsets = {name: _append(self._tar, f"{sample.key}.{name}", members[name]) for name in sorted(members)}
        self._rows.append({**facts, "offset": offsets[image], "size": len(data)})
        if len(self._rows) == self._shard_size:
            self._finish()

    def close(self) -> list[dict[str, Any]]:
        """Finish the last shard and return what a manifest holds of each.

        An entry has `name`, `images`, `bytes` (of the tar), `sha256` (of the tar) and `index_sha256`.
        """
        self._finish()
        return self._entries

    def _check(self, sample: Sample) -> None:
        if not _KEY.fullmatch(sample.key):
            raise DarkroomError(
                f"the key {sample.key!r} cannot name a file in a shard: use 1 to 80 letters, digits, `_` and `-`."
            )
        if sample.key <= self._last_key:
            raise DarkroomError(
                f"the key {sample.key} comes after {self._last_key}: a source must give its keys in ascending order, "
                "each once."
            )
        pixels = sample.image.mode, sample.image.size
        if self._pixels not in (None, pixels):
            raise DarkroomError(
                f"the image {sample.key} has mode and size {pixels}, and those before it {self._pixels}."
            )
        self._last_key, self._pixels = sample.key, pixels

    def _finish(self) -> None:
        if self._tar is None:
            return
        self._tar.close()
        self._tar = None
        name = f"{len(self._entries):05d}"
        tar = self._folder / f"{name}.tar"
        entry = {
            "name": name,
            "images": len(self._rows),
            "bytes": tar.stat().st_size,
            "sha256": sha256_file(tar),
            "index_sha256": write_index(self._folder / f"{name}.parquet", self._rows, IMAGES),
        }
        # Last: as in img2dataset, a shard with its stats is a whole shard.
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


def write_shards(folder: Path, samples: Iterable[Sample], shard_size: int, format: str) -> list[dict[str, Any]]:
    """Write samples as shards of at most `shard_size` images into `folder`; return their entries for a manifest.

    The samples' images are stored as they are, so all have one size and mode. `format` is png or webp, both lossless.
    The caller writes the manifest, with the entries under `shards` and (C, H, W) under `image_shape`, so that
    `ImageShards.open_folder` reads it.

    Raises:
        DarkroomError: see `ShardWriter.add`.
    """
    writer = ShardWriter(folder, shard_size, format)
    for sample in samples:
        writer.add(sample)
    return writer.close()
