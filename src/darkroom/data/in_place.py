"""Writes a part that is indexed in place: an index into existing tars, and no tar."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import sha256_file
from darkroom.data.index import IMAGES, IndexWriter
from darkroom.data.parts import Policy, write_with
from darkroom.data.pipeline import Outcome
from darkroom.data.preparing import Preparation
from darkroom.data.sample import Extent
from darkroom.data.splits import SPLITS
from darkroom.data.tar_files import TarFiles
from darkroom.errors import DarkroomError

FORMAT = "original"  # the image format in the manifest


def tars_of(source: Any) -> TarFiles | None:
    """Return the tars of a source that is indexed in place; None: its images are stored anew."""
    return source.tars if getattr(source, "in_place", False) else None


class _Facts:
    """The manifest entries of tars: each tar is read once, although it may belong to three splits."""

    def __init__(self, tars: TarFiles) -> None:
        self._tars = tars
        self._known: dict[int, dict[str, Any]] = {}

    def __call__(self, number: int) -> dict[str, Any]:
        if number not in self._known:
            path = self._tars(number)
            metadata = {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
            self._known[number] = {"tar": self._tars.names[number], **metadata}
        return self._known[number]


class _Pointers:
    """The index of one split: a row group for each tar that has images in it."""

    def __init__(self, folder: Path, metadata: _Facts, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._index = IndexWriter(folder, IMAGES)
        self._facts, self._size = metadata, size
        self._number = -1
        self._rows: list[dict[str, Any]] = []
        self._entries: list[dict[str, Any]] = []

    def add(self, one: Outcome) -> None:
        """Add the location of an image; the images of a tar come one after the other."""
        assert one.extent is not None and one.original_size is not None
        extent: Extent = one.extent
        if extent.tar != self._number:
            self._finish()
            self._number = extent.tar
        self._rows.append(
            {
                "key": one.key,
                "offset": extent.offset,
                "size": extent.size,
                "sha256": one.sha256,
                "width": self._size,
                "height": self._size,
                "original_width": one.original_size[0],
                "original_height": one.original_size[1],
                "label": one.label,
                "caption": one.caption,
            }
        )

    def close(self) -> dict[str, Any]:
        self._finish()
        return {"shards": self._entries, "index_sha256": self._index.close()}

    def _finish(self) -> None:
        if not self._rows:
            return
        self._index.add(self._rows)
        images = {"name": f"{self._number:05d}", "images": len(self._rows)}
        self._entries.append({**images, **self._facts(self._number)})
        self._rows = []


def write_in_place(
    folder: Path,
    part: str,
    outcomes: Iterable[Outcome],
    tars: TarFiles,
    source: Mapping[str, Any],
    how: Preparation,
    policy: Policy,
    mirror: bool,
    logs: Path,
) -> dict[str, Any]:
    """Write `folder/{train,val,test}/index.parquet`, `quarantine.parquet` and the manifest; return the manifest.

    Checks, quarantine, counts and splits are those of `darkroom.data.parts.write_part`. No tar is changed.

    Args:
        folder: the folder of the part.
        part: the name of the part.
        outcomes: outcomes with the extent of each image, from `darkroom.data.pipeline.outcomes` with `store` False;
            the images of a tar come one after the other.
        tars: the tars that the extents refer to.
        source: see `write_part`, as for the arguments below.
        how: the preparation of images on reading.
        policy: which samples are indexed, and in which split.
        mirror: whether mirror images are valid training data.
        logs: the folder for the list of damaged samples where no other is left.

    The manifest is that of `write_part` with in_place true and image.format "original". A shard is an original tar,
    listed in each split that has images of it: name (its number in the source), images, bytes and sha256 of the tar,
    and tar: its path or URL, as written in params.yaml.

    Raises:
        DarkroomError: no sample can be used, or a tar was removed.
    """
    known = _Facts(tars)
    writers = {split: _Pointers(folder / split, known, how.spec.size) for split in SPLITS}
    metadata = {"source": dict(source), "mirror": mirror, "in_place": True}
    prepared = replace(how, spec=replace(how.spec, format=FORMAT))
    try:
        return write_with(writers, folder, part, outcomes, prepared, policy, metadata, logs)
    except FileNotFoundError as error:
        raise DarkroomError(f"{error.filename} was there when it was read, and is gone: put it back.") from error
