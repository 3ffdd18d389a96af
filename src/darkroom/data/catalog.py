"""The catalog: the classes of all parts with their numbers, and how many images there are of each."""

from dataclasses import dataclass, field
from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest
from darkroom.data.images import ImageSpec
from darkroom.data.layout import KIND as SHARDS_KIND
from darkroom.data.layout import SHARDS
from darkroom.errors import DarkroomError

KIND = "catalog"
CATALOG = Path("data/catalog")


@dataclass(frozen=True)
class Catalog:
    """Metadata of all parts together.

    classes: the names of the classes; the number of a class is its index.
    parts: the SHA-256 of the manifest of each part, in the order of params.yaml.
    spec: size and channels of all images, and their file format ("mixed" where the parts have different formats).
    images: the number of images in each split.
    counts: for each split, the number of images of each class.
    fingerprint: the SHA-256 of the manifest of the catalog, its fingerprint.
    """

    classes: tuple[str, ...]
    parts: dict[str, str]
    spec: ImageSpec
    images: dict[str, int]
    counts: dict[str, dict[str, int]]
    fingerprint: str
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
        """Check that images, or artifacts made from them, come from the parts of the catalog.

        Args:
            sources: for each part in use, the SHA-256 of the manifest of its shards: the attribute `sources` of
                `ImageShards` and of `LatentShards`.

        Raises:
            ArtifactError: a part is not in the catalog, or has changed since; the message names the part.
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
        folder: the folder of the catalog.
        shards: the folder of the parts, which are compared with the catalog. None where there may be no image shards,
            as in a training on latents: call `Catalog.require_parts(latents.sources)` there.

    Raises:
        ArtifactError: missing or damaged, or a part has changed since; the message names the file or the part.
    """
    manifest = read_manifest(folder, KIND)
    classes = tuple(manifest["classes"])
    catalog = Catalog(
        classes=classes,
        parts={part["name"]: part["sha256"] for part in manifest["parts"]},
        spec=ImageSpec.of(manifest),
        images=manifest["images"],
        counts=manifest["counts"],
        fingerprint=manifest_hash(folder),
        _numbers={name: number for number, name in enumerate(classes)},
    )
    if shards is not None:
        found = {}
        for part in catalog.parts:
            read_manifest(shards / part, SHARDS_KIND)  # raises where it is missing
            found[part] = manifest_hash(shards / part)
        catalog.require_parts(found)
    return catalog
