"""The catalog: the classes of all parts with their numbers, and how many images there are of each."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest, write_manifest
from darkroom.data.duplicates import find_duplicates
from darkroom.data.grid import image_grid, save_png
from darkroom.data.images import ImageSpec
from darkroom.data.parts import KIND as SHARDS_KIND
from darkroom.data.parts import SHARDS
from darkroom.data.reader import ImageShards, same_spec
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError

KIND = "catalog"
CATALOG = Path("data/catalog")
_GRID_PIXELS = 64  # smaller images are enlarged in the grid to about this size


def natural_order(names: Iterable[str]) -> list[str]:
    """Return names sorted as a person would: runs of digits by their value, "2" before "10"."""

    def rank(name: str) -> tuple[list[str | int], str]:
        pieces = re.split(r"([0-9]+)", name)
        return [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)], name

    return sorted(names, key=rank)


@dataclass(frozen=True)
class Catalog:
    """What is known of all parts together.

    classes: the names of the classes; a class's number is its place.
    parts: for each part, in the order of params.yaml, the sha256 of its manifest.
    spec: size, channels and format of every image.
    images: images in each split.
    counts: for each split, images of each class.
    identity: the sha256 of its manifest.
    """

    classes: tuple[str, ...]
    parts: dict[str, str]
    spec: ImageSpec
    images: dict[str, int]
    counts: dict[str, dict[str, int]]
    identity: str
    _numbers: dict[str, int] = field(repr=False, compare=False)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of every image."""
        return self.spec.shape

    def number(self, label: str) -> int:
        """Return the number of a class, 0 to len(classes) - 1.

        Raises:
            DarkroomError: the catalog has no such class.
        """
        if label not in self._numbers:
            raise DarkroomError(
                f"the class {label!r} is not in {CATALOG}, which has {len(self.classes)} others: run `dvc repro`."
            )
        return self._numbers[label]

    def require_parts(self, sources: dict[str, str]) -> None:
        """Check that images, or what was made from them, come from the parts that were catalogued.

        Args:
            sources: for each part in use, the sha256 of its shards' manifest: the attribute `sources` of `ImageShards`
                and of `LatentShards`.

        Raises:
            ArtifactError: a part is not in the catalog, or is another; names it.
        """
        for part, found in sources.items():
            if self.parts.get(part) != found:
                what = "was written again since" if part in self.parts else "is not in it"
                raise ArtifactError(
                    f"{CATALOG} does not fit the part `{part}`, which {what}: run `dvc repro`, which makes both anew."
                )


def load_catalog(folder: Path = CATALOG, shards: Path | None = SHARDS) -> Catalog:
    """Return the catalog in `folder`.

    Args:
        folder: where it lies.
        shards: the folder of the parts, which must be those that were catalogued. None where there may be no image
            shards, as in a training on latents: check with `Catalog.require_parts(latents.sources)` there.

    Raises:
        ArtifactError: missing or damaged, or a part is not the one that was catalogued; names file or part.
    """
    manifest = read_manifest(folder, KIND)
    classes = tuple(manifest["classes"])
    catalog = Catalog(
        classes=classes,
        parts={part["name"]: part["sha256"] for part in manifest["parts"]},
        spec=ImageSpec.of(manifest),
        images=manifest["images"],
        counts=manifest["counts"],
        identity=manifest_hash(folder),
        _numbers={name: number for number, name in enumerate(classes)},
    )
    if shards is not None:
        found = {}
        for part in catalog.parts:
            read_manifest(shards / part, SHARDS_KIND)  # says in a sentence that it is missing
            found[part] = manifest_hash(shards / part)
        catalog.require_parts(found)
    return catalog


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
