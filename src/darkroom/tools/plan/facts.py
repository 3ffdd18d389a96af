"""What a plan must know of the data: from artifacts that are up to date, else from the source and params.yaml.

The first images of a source are prepared, stored and read in memory, as `ingest` and the readers do it: that gives the
bytes and the seconds of an image.
"""

import json
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from darkroom.artifacts.manifest import NAME
from darkroom.check.check import schema
from darkroom.data.catalog import CATALOG
from darkroom.data.images import decode
from darkroom.data.layout import SHARDS
from darkroom.data.pipeline import outcome
from darkroom.data.preparing import Preparation
from darkroom.data.sources import Source, open_source, slice_of
from darkroom.errors import DarkroomError
from darkroom.params.section import validate
from darkroom.params.sources import settings_of
from darkroom.params.stage import given
from darkroom.stages.ingest import preparation
from darkroom.tools.plan.timing import Stopwatch

SPLITS = ("train", "val", "test")
_LABELS, _IMAGES = 1000, 64  # samples whose labels, and whose images, are looked at
_PATIENCE = 3.0  # seconds for that, a part


@dataclass(frozen=True)
class Facts:
    """The data as a plan sees them.

    image_shape: (C, H, W) of an image.
    images: for each part, images in each split.
    mirrored: the parts whose mirror images are encoded, too.
    in_place: the parts whose images stay where they are, and are prepared on reading.
    classes: number of classes.
    captions: captions that differ among the first images.
    image_bytes: of an image as it is stored.
    prepare_seconds, read_seconds: of one image from the source into a shard, and from a shard to an array.
    open_seconds: of a source: the library or the list that it loads.
    assumed: a sentence for each value that is not known before the data are read.
    watch: what calls are timed with.
    """

    image_shape: tuple[int, int, int]
    images: dict[str, dict[str, int]]
    mirrored: frozenset[str]
    in_place: frozenset[str]
    classes: int
    captions: int
    image_bytes: float
    prepare_seconds: float
    read_seconds: float
    open_seconds: float
    assumed: tuple[str, ...]
    watch: Stopwatch = field(default_factory=Stopwatch)

    def count(self, split: str) -> int:
        """Return the images of a split in all parts."""
        return sum(part[split] for part in self.images.values())


def expected_splits(images: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Return how many of `images` each split gets on average: which ones follows from a hash of each key."""
    train, val = round(images * shares["train"]), round(images * shares["val"])
    return {"train": train, "val": min(val, images - train), "test": max(0, images - train - val)}


def _manifest(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / NAME).read_text())
    return value


def _look(
    source: Source, start: int, stop: int | None, how: Preparation
) -> tuple[set[str], set[str], list[int], float, float]:
    """Return labels and captions of a part's first images, their sizes stored, and the seconds to prepare and to read.

    Raises:
        DarkroomError: none of them can be used.
    """
    labels: set[str] = set()
    captions: set[str] = set()
    sizes: list[int] = []
    prepared = read = 0.0
    began = at = time.perf_counter()
    for number, entry in enumerate(islice(source.entries(start, stop), _LABELS)):
        found = outcome(source, entry, how, store=number < _IMAGES)
        if found.original_size is not None and found.label is not None:
            labels.add(found.label)
        if found.original_size is not None and found.caption is not None:
            captions.add(found.caption)
        if found.data is not None:
            middle, worked = time.perf_counter(), time.thread_time()
            sha256(found.data).digest()
            decode(found.data, how.spec.channels)
            prepared, read = prepared + middle - at, read + time.thread_time() - worked
            sizes.append(len(found.data))
        if sizes and time.perf_counter() - began > _PATIENCE:
            break
        at = time.perf_counter()  # a source may lie behind a network: waiting counts
    if not sizes:
        raise DarkroomError(f"none of the first {_LABELS:,} samples can be used: run `dvc repro ingest` to see why.")
    return labels, captions, sizes, prepared / len(sizes), read / len(sizes)


def _expected(
    part: str, name: str, source: Source, start: int, stop: int | None, shares: Mapping[str, float]
) -> dict[str, int]:
    if stop is None or getattr(source, "unit", "images") != "images":
        raise DarkroomError(
            f"part `{part}`: how many images {name} has is known once it is ingested: run `dvc repro ingest@{part}` "
            "first."
        )
    return expected_splits(stop - start, shares)


def gather(stale: Set[str]) -> Facts:
    """Return what is known of the data, and what is assumed.

    Args:
        stale: the stages that are out of date: what they made is not believed.

    Raises:
        DarkroomError: params.yaml is not valid, or a part lies outside its source.
    """
    images: dict[str, dict[str, int]] = {}
    mirrored: set[str] = set()
    in_place: set[str] = set()
    assumed: list[str] = []
    labels: set[str] = set()
    captions: set[str] = set()
    looks: list[tuple[list[int], float, float]] = []
    opened = 0.0
    missing: list[DarkroomError] = []
    for part in given("catalog")["parts"]:
        params = validate(schema("ingest"), given("ingest", part))
        settings, chosen = params.ingest, params.parts[part]  # type: ignore[attr-defined]
        how = preparation(settings)
        details = settings_of(part, chosen, getattr(params, chosen.source))
        mirrored |= {part} if getattr(details, "mirror", False) else set()
        fresh = f"ingest@{part}" not in stale and (SHARDS / part / NAME).is_file()
        if fresh:
            splits = _manifest(SHARDS / part)["splits"]
            images[part] = {split: splits[split]["images"] for split in SPLITS}
        began = time.thread_time()
        try:
            source = open_source(chosen, details)
            in_place |= {part} if getattr(source, "in_place", False) else set()
            start, stop = slice_of(source, part, chosen.start, chosen.stop)
            if not fresh:
                images[part] = _expected(part, chosen.source, source, start, stop, settings.splits.model_dump())
            opened = max(opened, time.thread_time() - began)  # the first loads what the others use
            found, texts, sizes, prepared, read = _look(source, start, stop, how)
        except DarkroomError as error:
            if not fresh:
                raise
            missing.append(error)  # who has the shards needs no source
            continue
        labels |= found
        captions |= texts
        looks.append((sizes, prepared, prepared if part in in_place else read))
    if not images:
        raise DarkroomError("params.yaml: `parts` is empty: name at least one part.")
    if not looks:
        raise DarkroomError(f"no source can be read to measure an image: {missing[0]}") from missing[0]
    if any(f"ingest@{part}" in stale for part in images):
        total = sum(sum(part.values()) for part in images.values())
        assumed.append(f"{total:,} images, split by their shares in `ingest.splits`: the source's size, nothing read")
    if "catalog" not in stale and (CATALOG / NAME).is_file():
        classes = len(_manifest(CATALOG)["classes"])
    else:
        classes = max(1, len(labels))
        assumed.append(f"{classes} classes: the labels of the first {_LABELS:,} images of each part, at most")
    return Facts(
        image_shape=how.spec.shape,
        images=images,
        mirrored=frozenset(mirrored),
        in_place=frozenset(in_place),
        classes=classes,
        captions=len(captions),
        image_bytes=fmean(size for sizes, _, _ in looks for size in sizes),
        prepare_seconds=fmean(prepared for _, prepared, _ in looks),
        read_seconds=fmean(read for _, _, read in looks),
        open_seconds=opened,
        assumed=tuple(assumed),
    )
