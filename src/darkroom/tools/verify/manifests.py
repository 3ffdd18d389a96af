"""The manifests of image shards, latents and embeddings as types: another structure is an error."""

from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from darkroom.artifacts.manifest import NAME, check_seal, read_manifest
from darkroom.data.splits import SPLITS
from darkroom.report.metadata import ImageFacts, Metadata, typed


class Tar(Metadata):
    """A shard. `tar`: the path or URL of its tar, where the part is indexed in place."""

    name: str
    images: int
    bytes: int
    sha256: str
    tar: str | None = None


class Split(Metadata):
    """A split: its shards, and the number of images by label."""

    images: int
    unlabelled: int
    labels: dict[str, int]
    shards: list[Tar]
    index_sha256: str


class Quarantine(Metadata):
    """Counts of quarantine.parquet: rows, and for each action the number of rows by reason."""

    rows: int
    sha256: str
    quarantine: dict[str, int]
    repair: dict[str, int]
    keep: dict[str, int]


class Splits(Metadata):
    """The image shards by split."""

    train: Split
    val: Split
    test: Split


class Part(Metadata):
    """data/shards/PART."""

    part: str
    image: ImageFacts
    mirror: bool
    in_place: bool
    quarantine: Quarantine
    splits: Splits


class LatentFile(Metadata):
    """A shard of latents."""

    name: str
    images: int
    sha256: str


class Codebook(Metadata):
    """The codebook: the number of codes, and the hash of its file."""

    size: int
    sha256: str


class EmbeddingFiles(Metadata):
    """A shard of embeddings with the hashes of its files: image, text, encoding."""

    name: str
    images: int
    sha256: dict[str, str]


File = TypeVar("File", LatentFile, EmbeddingFiles)


class DerivedSplit(Metadata, Generic[File]):
    """The latents or embeddings of a split; `stored`: whether there are files."""

    stored: bool = True
    images: int
    shards: list[File] = Field(default_factory=list)
    index_sha256: str = ""


class DerivedSplits(Metadata, Generic[File]):
    """The latents or embeddings by split."""

    train: DerivedSplit[File]
    val: DerivedSplit[File]
    test: DerivedSplit[File]


class Derived(Metadata):
    """An artifact made from the images of a part. `shards`: the hash of the manifest of the image shards."""

    part: str
    shards: str
    splits: Any


class Latents(Derived):
    """data/latents/PART."""

    tokenizer: str
    codebook: Codebook | None = None
    splits: DerivedSplits[LatentFile]


class Embeddings(Derived):
    """data/embeddings/PART. `clip`: the fingerprint of the CLIP, empty where there is none."""

    clip: str
    splits: DerivedSplits[EmbeddingFiles]


Kind = TypeVar("Kind", bound=Metadata)


def stored_splits(manifest: Derived) -> dict[str, DerivedSplit[Any]]:
    """Return the splits of a manifest that have files, by name."""
    splits = {split: getattr(manifest.splits, split) for split in SPLITS}
    return {split: metadata for split, metadata in splits.items() if metadata.stored}


def sealed(folder: Path, kind: str, metadata: type[Kind]) -> tuple[dict[str, Any], Kind]:
    """Return a manifest as JSON and as types, after checking that its bytes have not changed.

    Raises:
        ArtifactError: missing, damaged, or of another kind or structure; the message names the file.
    """
    check_seal(folder)
    manifest = read_manifest(folder, kind)
    return manifest, typed(metadata, manifest, folder / NAME)
