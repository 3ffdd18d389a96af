"""Writes the catalog from the manifests and indexes of the parts."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from darkroom.artifacts.manifest import manifest_hash, read_manifest, write_manifest
from darkroom.data.catalog import KIND
from darkroom.data.duplicates import find_duplicates
from darkroom.data.grid import image_grid, save_png
from darkroom.data.layout import KIND as SHARDS_KIND
from darkroom.data.layout import SHARDS
from darkroom.data.reader import ImageShards, same_spec
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError

_GRID_PIXELS = 64  # smaller images are enlarged in the grid to about this size


def natural_order(names: Iterable[str]) -> list[str]:
    """Return names sorted as a person would: runs of digits by their value, "2" before "10"."""

    def rank(name: str) -> tuple[list[str | int], str]:
        pieces = re.split(r"([0-9]+)", name)
        return [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)], name

    return sorted(names, key=rank)


def write_catalog(folder: Path, parts: Sequence[str], grid_images: int, root: Path = SHARDS) -> dict[str, Any]:
    """Write manifest.json and grid.png into `folder`, from the manifests and indexes of the parts; return the manifest.

    The manifest (kind "catalog") holds classes (names in natural order), images and unlabelled (of each split), counts
    (images of each class in each split), image (size, channels, format), parts (name, sha256 of its manifest, images),
    and duplicates (see `find_duplicates`). The grid shows images taken evenly over the train rows of all parts.

    Raises:
        ArtifactError: a part is missing or damaged, or its images differ from the others'; names it.
        DarkroomError: no image is in the train split.
    """
    manifests = {part: read_manifest(root / part, SHARDS_KIND) for part in parts}
    spec = same_spec(manifests)
    counts: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    for manifest in manifests.values():
        for split in SPLITS:
            counts[split].update(manifest["splits"][split]["labels"])
    classes = natural_order(set().union(*counts.values()))

    def total(fact: str) -> dict[str, int]:
        return {split: sum(manifest["splits"][split][fact] for manifest in manifests.values()) for split in SPLITS}

    train = ImageShards.open_parts(parts, "train", root)
    if not len(train):
        raise DarkroomError(
            f"none of the parts {', '.join(parts)} has an image in its train split: add images, or raise "
            "`ingest.splits.train`."
        )
    rows = np.unique(np.linspace(0, len(train) - 1, min(grid_images, len(train))).round().astype(int))
    columns = int(np.ceil(np.sqrt(len(rows))))
    scale = max(1, _GRID_PIXELS // spec.size)
    save_png(folder / "grid.png", image_grid(train.__getitems__(rows.tolist()), columns, scale=scale))
    write_manifest(
        folder,
        KIND,
        classes=classes,
        images=total("images"),
        unlabelled=total("unlabelled"),
        counts={split: {name: counts[split][name] for name in classes} for split in SPLITS},
        image=spec.facts(),
        parts=[
            {
                "name": part,
                "sha256": manifest_hash(root / part),
                "images": sum(split["images"] for split in manifest["splits"].values()),
            }
            for part, manifest in manifests.items()
        ],
        duplicates=find_duplicates(manifests, root),
    )
    return read_manifest(folder, KIND)
