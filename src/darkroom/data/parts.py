"""Writes one part: a slice of a source, prepared, split by key, and sharded."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import read_manifest, write_manifest
from darkroom.data.images import ImageSpec, prepare
from darkroom.data.layout import KIND
from darkroom.data.sample import Sample
from darkroom.data.shards import ShardWriter
from darkroom.data.splits import SPLITS, split_of
from darkroom.errors import DarkroomError


def write_part(
    folder: Path,
    part: str,
    samples: Iterable[Sample],
    source: Mapping[str, Any],
    spec: ImageSpec,
    resample: str,
    shard_size: int,
    shares: Mapping[str, float],
    split_seed: int,
) -> dict[str, Any]:
    """Write `folder/{train,val,test}/` and `folder/manifest.json`; return the manifest.

    Samples are taken one by one, in their order, and each goes to the split that its key gives, so memory does not grow
    with the part. `source` is written into the manifest as it is.

    The manifest (kind "shards") holds part, source, image (size, channels, format), and for each split: images, labels
    (images of each label), unlabelled, shards (the entries of `ShardWriter.close`). An empty split has no shards.

    Raises:
        DarkroomError: an image or a key that cannot be stored; names the key.
    """
    writers = {split: ShardWriter(folder / split, shard_size, spec.format) for split in SPLITS}
    labels: dict[str, Counter[str | None]] = {split: Counter() for split in SPLITS}
    for sample in samples:
        split = split_of(sample.key, shares, split_seed)
        writers[split].add(_prepared(sample, spec, resample))
        labels[split][sample.label] += 1
    splits = {}
    for split in SPLITS:
        count = labels[split]
        splits[split] = {
            "images": count.total(),
            "unlabelled": count.pop(None, 0),
            "labels": dict(count),
            "shards": writers[split].close(),
        }
    write_manifest(folder, KIND, part=part, source=dict(source), image=spec.facts(), splits=splits)
    return read_manifest(folder, KIND)


def _prepared(sample: Sample, spec: ImageSpec, resample: str) -> Sample:
    try:
        return replace(sample, image=prepare(sample.image, spec, resample))
    except (DarkroomError, OSError) as error:  # OSError: Pillow cannot read it
        raise DarkroomError(f"the image {sample.key} cannot be stored: {error}") from error
