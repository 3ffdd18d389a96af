"""Read the catalog, with classes and image counts of all parts, and the selection, the parts of the tokenizer.

`catalog` writes the selection, the only dependency of `train_tokenizer`. A part outside the selection does not change
it, so adding such a part does not retrain the tokenizer or encode other parts again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest
from darkroom.data.images import ImageSpec
from darkroom.data.layout import CATALOG, CATALOG_KIND, SHARDS
from darkroom.data.layout import KIND as SHARDS_KIND
from darkroom.errors import DarkroomError


@dataclass(frozen=True)
class Catalog:
    """Combined metadata of all parts.

    classes: the names of the classes; the number of a class is its index.
    parts: the SHA-256 of the manifest of each part, in the order of params.yaml.
    spec: size and channels of all images, and their file format ("mixed" where the parts have different formats).
    images: the number of images in each split.
    counts: for each split, the number of images of each class.
    fingerprint: the SHA-256 of the manifest of the catalog, its fingerprint.
    leakage: see `grouping.measure_leakage`.
    """

    classes: tuple[str, ...]
    parts: dict[str, str]
    spec: ImageSpec
    images: dict[str, int]
    counts: dict[str, dict[str, int]]
    fingerprint: str
    leakage: Mapping[str, Any] | None
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
                f"the class {label!r} is not among the {len(self.classes)} classes in {CATALOG}: run `dvc repro`."
            )
        return self._numbers[label]

    def require_parts(self, sources: Mapping[str, str]) -> None:
        """Check that images, or artifacts made from them, come from the parts of the catalog.

        `sources` has for each part in use the SHA-256 of the manifest of its shards: the attribute `sources` of
        `ImageShards` and of `LatentShards`.

        Raises:
            ArtifactError: a part is not in the catalog, or has changed since; the message names the part.
        """
        _require_parts(CATALOG, self.parts, sources)


def _require_parts(folder: Path, parts: Mapping[str, str], sources: Mapping[str, str]) -> None:
    for part, sha256 in sources.items():
        if parts.get(part) != sha256:
            problem = "was rewritten since" if part in parts else "is not in it"
            raise ArtifactError(
                f"{folder} does not match the part `{part}`, which {problem}: run `dvc repro` to update both."
            )


def _stored_parts(parts: Iterable[str], root: Path) -> dict[str, str]:
    """Return the SHA-256 of the manifests of some parts. Raises ArtifactError if one is missing."""
    return {part: manifest_hash(root / part) for part in parts if read_manifest(root / part, SHARDS_KIND)}


def load_catalog(folder: Path = CATALOG, shards: Path | None = SHARDS) -> Catalog:
    """Return the catalog in `folder`.

    The parts in `shards` are compared with the catalog. None where there may be no image shards, as in a training on
    latents: call `Catalog.require_parts(latents.sources)` there.

    Raises:
        ArtifactError: missing or damaged, or a part has changed since; the message names the file or the part.
    """
    manifest = read_manifest(folder, CATALOG_KIND)
    classes = tuple(manifest["classes"])
    catalog = Catalog(
        classes=classes,
        parts={part["name"]: part["sha256"] for part in manifest["parts"]},
        spec=ImageSpec.of(manifest),
        images=manifest["images"],
        counts=manifest["counts"],
        fingerprint=manifest_hash(folder),
        leakage=manifest.get("leakage"),
        _numbers={name: number for number, name in enumerate(classes)},
    )
    if shards is not None:
        catalog.require_parts(_stored_parts(catalog.parts, shards))
    return catalog


SELECTION_KIND = "selection"
SELECTION = Path("data/selection")


@dataclass(frozen=True)
class Selection:
    """The selected parts, with their hashes at the time of the selection.

    parts: the SHA-256 of the manifest of each part.
    spec: size and channels of every image.
    fingerprint: the SHA-256 of the manifest of the selection, its fingerprint.
    """

    parts: dict[str, str]
    spec: ImageSpec
    fingerprint: str


def load_selection(folder: Path = SELECTION, root: Path = SHARDS) -> Selection:
    """Return the selection in `folder`, after checking that the parts in `root` have not changed since.

    Raises:
        ArtifactError: missing or damaged, or a part was rewritten since; the message names the file or part.
    """
    manifest = read_manifest(folder, SELECTION_KIND)
    parts = {part["name"]: part["sha256"] for part in manifest["parts"]}
    _require_parts(folder, parts, _stored_parts(parts, root))
    return Selection(parts, ImageSpec.of(manifest), manifest_hash(folder))


CHANCE = 0.05  # fraction of held-out images that are as near to a training image where no image has a twin


def leakage_warnings(leakage: Mapping[str, Any] | None) -> list[str]:
    """Return a line where many held-out images have a near twin in training; see `grouping.measure_leakage`.

    Many: twice as many as by chance, and three standard errors more, counted in groups, whose images are alike.
    """
    if leakage is None or leakage.get("left_out"):
        return []
    error = (CHANCE * (1 - CHANCE) / leakage["groups"]) ** 0.5
    if leakage["near"] <= max(2 * CHANCE, CHANCE + 3 * error):
        return []
    remedy = "some lie in other parts or groups, or in too large a group: set `reference_stats.twins: quarantine`"
    if leakage["setting"] is not None:
        remedy = f"set `ingest.group: {leakage['setting']}`"
    return [
        f"{leakage['near']:.0%} of the held-out images have a near twin in training ({CHANCE:.0%} would be chance), so "
        f"scores of held-out images partly measure memory: {remedy}"
    ]


_SHOWN = 10  # classes in a warning


def class_warnings(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line on the classes without images in the train split, if any.

    `counts` has for each split the number of images of each class, as in the catalog.
    """
    present = dict.fromkeys(name for of in counts.values() for name, images in of.items() if images)
    if not (names := [name for name in present if not counts["train"].get(name)]):
        return []
    shown = ", ".join(map(repr, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return [f"classes without a training image, so that nothing learns them: {shown}{more}: add images of them"]
