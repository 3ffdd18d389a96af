"""The manifests of image shards, latents and embeddings as types: another structure is an error."""

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from darkroom.artifacts.manifest import NAME, check_seal, read_manifest
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


class LatentSplit(Metadata):
    """The latents of a split."""

    images: int
    shards: list[LatentFile]
    index_sha256: str


class LatentSplits(Metadata):
    """The latents by split."""

    train: LatentSplit
    val: LatentSplit
    test: LatentSplit


class Shape(Metadata):
    """The format of a latent: its form, shape (C, h, w) and dtype."""

    form: Literal["distribution", "point", "codes"] = "distribution"
    shape: tuple[int, int, int]
    dtype: str


class Codebook(Metadata):
    """The codebook: the number of codes, and the hash of its file."""

    size: int
    sha256: str


class Derived(Metadata):
    """An artifact made from the images of a part. `shards`: the hash of the manifest of the image shards."""

    part: str
    shards: str


class Latents(Derived):
    """data/latents/PART."""

    tokenizer: str
    latent: Shape
    codebook: Codebook | None = None
    splits: LatentSplits


class EmbeddingFiles(Metadata):
    """A shard of embeddings with the hashes of its files: image, text, encoding."""

    name: str
    images: int
    sha256: dict[str, str]


class EmbeddingSplit(Metadata):
    """The embeddings of a split; `stored`: whether there are files."""

    stored: bool
    images: int
    shards: list[EmbeddingFiles] = Field(default_factory=list)
    index_sha256: str = ""


class EmbeddingSplits(Metadata):
    """The embeddings by split."""

    train: EmbeddingSplit
    val: EmbeddingSplit
    test: EmbeddingSplit


class Embeddings(Derived):
    """data/embeddings/PART. `clip`: the fingerprint of the CLIP, empty where there is none."""

    clip: str
    normalised: bool
    names: list[str]
    dim: int
    encoding_shape: tuple[int, int] | None
    dtype: str
    splits: EmbeddingSplits


Kind = TypeVar("Kind", bound=Metadata)


def sealed(folder: Path, kind: str, metadata: type[Kind]) -> tuple[dict[str, Any], Kind]:
    """Return a manifest as JSON and as types, after checking that its bytes have not changed.

    Raises:
        ArtifactError: missing, damaged, or of another kind or structure; the message names the file.
    """
    check_seal(folder)
    manifest = read_manifest(folder, kind)
    return manifest, typed(metadata, manifest, folder / NAME)
