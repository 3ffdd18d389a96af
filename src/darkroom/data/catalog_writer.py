"""Writes the catalog from the manifests and indexes of the parts."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.artifacts.manifest import file_hashes, manifest_hash, read_manifest, write_manifest
from darkroom.data.catalog import KIND
from darkroom.data.duplicates import find_duplicates, find_shared_keys
from darkroom.data.grid import contact_sheet, evenly_spaced, save_png
from darkroom.data.index import IMAGES, Index
from darkroom.data.layout import KIND as SHARDS_KIND
from darkroom.data.layout import SHARDS
from darkroom.data.passed_over import passed_over
from darkroom.data.reader import ImageShards, same_spec
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from darkroom.remote import is_remote

PICTURES, PICTURES_KIND = Path("samples/catalog"), "pictures"
_FETCHED = 4  # maximum number of remote shards that are downloaded for a grid
# The keys of a part's `quarantine` that count samples by reason.
_ACTIONS = ("quarantine", "repair", "keep")


def natural_order(names: Iterable[str]) -> list[str]:
    """Return names sorted as a person would: runs of digits by their value, "2" before "10"."""

    def rank(name: str) -> tuple[list[str | int], str]:
        pieces = re.split(r"([0-9]+)", name)
        return [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)], name

    return sorted(names, key=rank)


def catalog_facts(parts: Sequence[str], root: Path = SHARDS) -> dict[str, Any]:
    """Return the metadata of all parts together, from their manifests and indexes; no tar is read.

    Returns:
        classes: the names in natural order; empty where no image has a label.
        images, unlabelled, captions: for each split the number of images, of images without a label, and of images
            with a caption.
        counts: for each split the number of images of each class.
        image: size and channels of all images, and the format ("mixed" where the parts have different formats).
        parts: for each part its name, the SHA-256 of its manifest, images, shards, bytes of the tars, mirror,
            quarantine ({action: {reason: samples}}), shorter_side (minimum, median and maximum of the original images,
            in pixels), enlarged (images whose original was smaller), and where there is any, passed_over.
        quarantine: the same over all parts.
        duplicates: see `find_duplicates`; shared_keys: see `find_shared_keys`.

    Raises:
        ArtifactError: a part is missing or damaged, or its images differ from those of the others; the message names
            the part.
    """
    manifests = {part: read_manifest(root / part, SHARDS_KIND) for part in parts}
    spec = same_spec(manifests)
    counts: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    captions: Counter[str] = Counter(dict.fromkeys(SPLITS, 0))
    described, wrong = [], {action: Counter[str]() for action in _ACTIONS}
    for part, manifest in manifests.items():
        indexes = {split: Index({root / part / split: manifest["splits"][split]}, IMAGES) for split in SPLITS}
        for split, index in indexes.items():
            counts[split].update(manifest["splits"][split]["labels"])
            captions[split] += len(index.column("caption")) - index.column("caption").null_count
        for action in _ACTIONS:
            wrong[action].update(manifest["quarantine"][action])
        described.append({"name": part, "sha256": manifest_hash(root / part), **_part_facts(manifest, indexes)})
    classes = natural_order(set().union(*counts.values()))

    def total(fact: str) -> dict[str, int]:
        return {split: sum(manifest["splits"][split][fact] for manifest in manifests.values()) for split in SPLITS}

    return {
        "classes": classes,
        "images": total("images"),
        "unlabelled": total("unlabelled"),
        "captions": dict(captions),
        "counts": {split: {name: counts[split][name] for name in classes} for split in SPLITS},
        "image": spec.metadata(),
        "parts": described,
        "quarantine": {action: dict(sorted(reasons.items())) for action, reasons in wrong.items()},
        "duplicates": find_duplicates(manifests, root),
        "shared_keys": find_shared_keys(manifests, root),
    }


def captions_of(parts: Sequence[str], root: Path = SHARDS) -> list[str]:
    """Return the distinct captions of all parts and splits, in order."""
    found: set[str] = set()
    for part in parts:
        manifest = read_manifest(root / part, SHARDS_KIND)
        index = Index({root / part / split: manifest["splits"][split] for split in SPLITS}, IMAGES)
        found.update(index.column("caption").drop_null().unique().to_pylist())
    return sorted(found)


def _part_facts(manifest: Mapping[str, Any], indexes: Mapping[str, Index]) -> dict[str, Any]:
    splits = [manifest["splits"][split] for split in SPLITS]
    sides = [
        np.minimum(index.numbers("original_width"), index.numbers("original_height")) for index in indexes.values()
    ]
    shorter = np.concatenate(sides)
    spread_of = np.percentile(shorter, (0, 50, 100), method="lower").tolist() if len(shorter) else []
    # A tar that is indexed in place is in each split that has images of it.
    tars = {
        entry.get("tar", f"{split}/{entry['name']}"): entry["bytes"]
        for split in SPLITS
        for entry in manifest["splits"][split]["shards"]
    }
    return {
        "images": sum(metadata["images"] for metadata in splits),
        "shards": len(tars),
        "bytes": sum(tars.values()),
        "mirror": manifest["mirror"],
        "quarantine": {action: manifest["quarantine"][action] for action in _ACTIONS},
        "shorter_side": spread_of,
        "enlarged": int((shorter < manifest["image"]["size"]).sum()),
        **({"passed_over": aside} if (aside := passed_over(manifest["source"])) else {}),
    }


def write_catalog(folder: Path, parts: Sequence[str], root: Path = SHARDS) -> dict[str, Any]:
    """Write manifest.json into `folder`, from the parts; return it: kind "catalog", and what `catalog_facts` returns.

    Raises:
        ArtifactError: a part is missing or damaged, or its images differ from the others'; names it.
        DarkroomError: no image is in the train split.
    """
    metadata = catalog_facts(parts, root)
    if not metadata["images"]["train"]:
        raise DarkroomError(
            f"none of the parts {', '.join(parts)} has an image in its train split: add images, or raise "
            "`ingest.splits.train`."
        )
    write_manifest(folder, KIND, **metadata)
    return read_manifest(folder, KIND)


def write_picture(folder: Path, catalog: Path, images: int, root: Path = SHARDS) -> None:
    """Write grid.png into `folder`: images evenly spaced over the train rows of all parts (see `shown_rows`).

    The picture is no part of the catalog, which all trainings read, so another picture retrains nothing.

    Args:
        folder: the folder of the picture and its manifest (kind "pictures": the SHA-256 of the catalog, and files).
        catalog: the folder of the catalog.
        images: the maximum number of images in the grid.
        root: the folder of the parts.
    """
    parts = [part["name"] for part in read_manifest(catalog, KIND)["parts"]]
    train = ImageShards.open_parts(parts, "train", root)
    rows = shown_rows(train)
    save_png(folder / "grid.png", data_grid(train.__getitems__(rows[evenly_spaced(images, len(rows))].tolist())))
    write_manifest(folder, PICTURES_KIND, catalog=manifest_hash(catalog), files=file_hashes(folder))


def shown_rows(shards: ImageShards) -> NDArray[np.int64]:
    """Return the rows that a grid takes its images from: all rows, but only a few shards of remote parts.

    A shard is downloaded as a whole, so one image of each of a thousand shards would download all of them.
    """
    far = [number for number, shard in enumerate(shards.shards) if is_remote(shard.tar)]
    left_out = set(far) - {far[place] for place in evenly_spaced(_FETCHED, len(far))}
    return np.concatenate(
        [np.empty(0, np.int64)]
        + [
            np.arange(shard.first, shard.first + shard.images)
            for number, shard in enumerate(shards.shards)
            if number not in left_out
        ]
    )


def data_grid(images: NDArray[np.uint8]) -> Image.Image:
    """Return images, uint8 (N, C, H, W), as a square grid."""
    return contact_sheet(images, grid_columns(len(images)))


def grid_columns(images: int) -> int:
    """Return the number of columns of `data_grid` for a number of images."""
    return math.ceil(math.sqrt(images))
