"""Write the catalog from the manifests and indexes of the parts, and find duplicates among their images."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.artifacts.manifest import file_hashes, manifest_hash, read_manifest, write_manifest
from darkroom.data.catalog import SELECTION_KIND
from darkroom.data.grid import contact_sheet, evenly_spaced, save_png
from darkroom.data.grouping import measure_leakage
from darkroom.data.index import Index
from darkroom.data.layout import CATALOG_KIND, SHARDS
from darkroom.data.layout import KIND as SHARDS_KIND
from darkroom.data.reader import ImageShards, same_spec
from darkroom.data.sources.walk import passed_over
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from darkroom.remote import is_remote

_NAMED = 10  # maximum number of groups in the manifest


class Location(NamedTuple):
    """The location of an image: its part, split and key."""

    part: str
    split: str
    key: str


def find_duplicates(manifests: Mapping[str, Mapping[str, Any]], root: Path) -> dict[str, Any]:
    """Return the number of images of some parts that are copies: equal SHA-256 of the stored bytes, so equal pixels.

    Returns:
        images: the number of images that repeat an earlier one; across_parts, across_splits: the number of these whose
        first occurrence is in another part, or in another split (a test image that was trained on); first: up to 10
        groups as lists of "part/split/key".
    """
    groups = _repeated(manifests, root, "sha256")
    return {
        "images": sum(len(group) - 1 for group in groups),
        "across_parts": sum(copy.part != group[0].part for group in groups for copy in group[1:]),
        "across_splits": sum(copy.split != group[0].split for group in groups for copy in group[1:]),
        "first": [["/".join(copy) for copy in group] for group in groups[:_NAMED]],
    }


def find_shared_keys(manifests: Mapping[str, Mapping[str, Any]], root: Path) -> dict[str, Any]:
    """Return the number of keys in more than one part, which is allowed: part and key together identify an image.

    Returns:
        keys: the number of such keys; first: up to 10 of them, each as a list of "part/split/key".
    """
    groups = _repeated(manifests, root, "key")
    return {"keys": len(groups), "first": [["/".join(copy) for copy in group] for group in groups[:_NAMED]]}


def _repeated(manifests: Mapping[str, Mapping[str, Any]], root: Path, column: str) -> list[list[Location]]:
    """Return the groups of rows with equal values of a column, in the order of their first rows.

    Indexes are read part by part, twice: 64 bits of each row find candidates, which are then compared in full. The
    memory is 8 bytes an image, and the candidates.
    """
    prefixes = [_prefixes(index, column) for _, _, index in _indexes(manifests, root)]
    values, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *prefixes]), return_counts=True)
    candidates = values[counts > 1]
    groups: dict[Any, list[Location]] = {}
    for part, split, index in _indexes(manifests, root) if len(candidates) else ():
        rows = np.flatnonzero(np.isin(_prefixes(index, column), candidates)).tolist()
        for identity, key in zip(index.some(column, rows), index.some("key", rows), strict=True):
            groups.setdefault(identity, []).append(Location(part, split, key))
    return [group for group in groups.values() if len(group) > 1]


def _indexes(manifests: Mapping[str, Mapping[str, Any]], root: Path) -> Iterator[tuple[str, str, Index]]:
    for part, manifest in manifests.items():
        for split in SPLITS:
            yield part, split, Index({root / part / split: manifest["splits"][split]})


def _prefixes(index: Index, column: str) -> NDArray[np.uint64]:
    """Return 64 bits of each row: of its hash, or of a hash of its key."""
    if column == "sha256":
        return np.ascontiguousarray(index.digests("sha256")[:, :8]).view(np.uint64).reshape(-1)
    hashes = (hashlib.blake2b(key.encode(), digest_size=8).digest() for key in index.texts("key") if key is not None)
    return np.frombuffer(b"".join(hashes), np.uint64)


PICTURES, PICTURES_KIND = Path("samples/catalog"), "pictures"
_FETCHED = 4  # maximum number of remote shards that are downloaded for a grid
# The keys of a part's `quarantine` that count samples by reason.
_ACTIONS = ("quarantine", "repair", "keep")


def natural_order(names: Iterable[str]) -> list[str]:
    """Return names in natural order: runs of digits sort by value, "2" before "10"."""

    def rank(name: str) -> tuple[list[str | int], str]:
        pieces = re.split(r"([0-9]+)", name)
        return [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)], name

    return sorted(names, key=rank)


def catalog_facts(parts: Sequence[str], root: Path = SHARDS) -> dict[str, Any]:
    """Return the combined metadata of all parts, from their manifests and indexes; no tar is read.

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
        indexes = {split: Index({root / part / split: manifest["splits"][split]}) for split in SPLITS}
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


def tar_sizes(manifest: Mapping[str, Any], splits: Iterable[str] = SPLITS) -> dict[str, int]:
    """Return the bytes of each tar of some splits of a part; one that is indexed in place may be in several splits."""
    return {
        entry.get("tar", f"{split}/{entry['name']}"): entry["bytes"]
        for split in splits
        for entry in manifest["splits"][split]["shards"]
    }


def _part_facts(manifest: Mapping[str, Any], indexes: Mapping[str, Index]) -> dict[str, Any]:
    splits = [manifest["splits"][split] for split in SPLITS]
    sides = ("original_width", "original_height")
    shorter = np.concatenate([np.minimum(*map(index.numbers, sides)) for index in indexes.values()])
    spread_of = np.percentile(shorter, (0, 50, 100), method="lower").tolist() if len(shorter) else []
    tars = tar_sizes(manifest)
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

    It also holds `leakage`, see `measure_leakage`.

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
    write_manifest(folder, CATALOG_KIND, **metadata, leakage=measure_leakage(parts, root))
    return read_manifest(folder, CATALOG_KIND)


def write_selection(folder: Path, parts: Sequence[str], root: Path = SHARDS) -> None:
    """Write manifest.json into `folder`: kind "selection", image, and name and SHA-256 of each part.

    Raises:
        ArtifactError: a part is missing or damaged, or its images differ from the others; the message names it.
    """
    manifests = {part: read_manifest(root / part, SHARDS_KIND) for part in sorted(parts)}
    spec = same_spec(manifests)
    chosen = [{"name": part, "sha256": manifest_hash(root / part)} for part in manifests]
    write_manifest(folder, SELECTION_KIND, image=spec.metadata(), parts=chosen)


def write_picture(folder: Path, catalog: Path, images: int, root: Path = SHARDS) -> None:
    """Write grid.png into `folder`: images evenly spaced over the train rows of all parts (see `shown_rows`).

    The picture is no part of the catalog, which all trainings read, so another picture retrains nothing.

    `folder` also gets a manifest: kind "pictures", the SHA-256 of the catalog, and files.
    """
    parts = [part["name"] for part in read_manifest(catalog, CATALOG_KIND)["parts"]]
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
    chosen = [shard for number, shard in enumerate(shards.shards) if number not in left_out]
    rows = [np.arange(shard.first, shard.first + shard.images) for shard in chosen]
    return np.concatenate([np.empty(0, np.int64), *rows])


def data_grid(images: NDArray[np.uint8]) -> Image.Image:
    """Return images, uint8 (N, C, H, W), as a square grid."""
    return contact_sheet(images, math.ceil(math.sqrt(len(images))))
