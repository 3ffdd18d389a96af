"""The manifests of image shards, latents and embeddings as types: another shape is a fault, and nothing is read."""

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from darkroom.artifacts.manifest import NAME, check_seal, read_manifest
from darkroom.report.facts import Facts, ImageFacts, typed


class Tar(Facts):
    """A shard. `tar`: where it is, a path or a URL, where the part is indexed in place."""

    name: str
    images: int
    bytes: int
    sha256: str
    tar: str | None = None


class Split(Facts):
    """The shards of a split, and images by label."""

    images: int
    unlabelled: int
    labels: dict[str, int]
    shards: list[Tar]
    index_sha256: str


class Quarantine(Facts):
    """What quarantine.parquet holds: rows, and for each action how many have each reason."""

    rows: int
    sha256: str
    quarantine: dict[str, int]
    repair: dict[str, int]
    keep: dict[str, int]


class Splits(Facts):
    """What there is of each split."""

    train: Split
    val: Split
    test: Split


class Part(Facts):
    """data/shards/PART."""

    part: str
    image: ImageFacts
    mirror: bool
    in_place: bool
    quarantine: Quarantine
    splits: Splits


class LatentFile(Facts):
    """A shard of latents."""

    name: str
    images: int
    sha256: str


class LatentSplit(Facts):
    """The latents of a split."""

    images: int
    shards: list[LatentFile]
    index_sha256: str


class LatentSplits(Facts):
    """What there is of each split."""

    train: LatentSplit
    val: LatentSplit
    test: LatentSplit


class Shape(Facts):
    """Of a latent: distribution, point or codes, (C, h, w), and as what its numbers are stored."""

    form: Literal["distribution", "point", "codes"] = "distribution"
    shape: tuple[int, int, int]
    dtype: str


class Codebook(Facts):
    """What codes stand for: how many there are, and the hash of their file."""

    size: int
    sha256: str


class Derived(Facts):
    """What was made of the images of a part. `shards`: the hash of the manifest of the images."""

    part: str
    shards: str


class Latents(Derived):
    """data/latents/PART."""

    tokenizer: str
    latent: Shape
    codebook: Codebook | None = None
    splits: LatentSplits


class EmbeddingFiles(Facts):
    """A shard of embeddings, and the hash of each of its files: image, text, encoding."""

    name: str
    images: int
    sha256: dict[str, str]


class EmbeddingSplit(Facts):
    """The embeddings of a split, where they are stored."""

    stored: bool
    images: int
    shards: list[EmbeddingFiles] = Field(default_factory=list)
    index_sha256: str = ""


class EmbeddingSplits(Facts):
    """What there is of each split."""

    train: EmbeddingSplit
    val: EmbeddingSplit
    test: EmbeddingSplit


class Embeddings(Derived):
    """data/embeddings/PART. `clip`: the CLIP that made them, empty where there is none."""

    clip: str
    normalised: bool
    names: list[str]
    dim: int
    encoding_shape: tuple[int, int] | None
    dtype: str
    splits: EmbeddingSplits


Kind = TypeVar("Kind", bound=Facts)


def sealed(folder: Path, kind: str, facts: type[Kind]) -> tuple[dict[str, Any], Kind]:
    """Return a manifest as it is and as types, after checking that it is byte for byte as it was written.

    Raises:
        ArtifactError: missing, damaged, of another kind or shape; names the file.
    """
    check_seal(folder)
    manifest = read_manifest(folder, kind)
    return manifest, typed(facts, manifest, folder / NAME)
