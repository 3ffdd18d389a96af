"""Checks the latents or embeddings of a part: every file, and that row i belongs to image i."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from darkroom.artifacts.manifest import NAME, ArtifactError, manifest_hash, sha256_file
from darkroom.data.embedding_file import KIND as EMBEDDINGS_KIND
from darkroom.data.embedding_file import file_name
from darkroom.data.index import EMBEDDINGS, LATENTS
from darkroom.data.index import NAME as INDEX
from darkroom.data.latent_file import CODEBOOK
from darkroom.data.latent_file import KIND as LATENTS_KIND
from darkroom.tools.verify.indexes import read_index
from darkroom.tools.verify.manifests import Derived, DerivedSplit, Embeddings, Latents, sealed, stored_splits
from darkroom.tools.verify.problems import Problem, remake, unreliable

Kind = TypeVar("Kind", bound=Derived)


@dataclass(frozen=True)
class Layout(Generic[Kind]):
    """The folder layout of a kind of artifact.

    kind: the kind in the manifest.
    manifest: the type of the manifest.
    schema: the schema of the index of a split.
    stage: the stage that makes the artifact.
    again: the remedy where the images have changed, as an imperative.
    files: returns the path and the hash of all files except indexes and manifest.
    """

    kind: str
    manifest: type[Kind]
    schema: pa.Schema
    stage: str
    again: str
    files: Callable[[Kind, Path], list[tuple[Path, str]]]


@dataclass
class Found(Generic[Kind]):
    """The result of the check of a part; `rows`: the number of latents or embeddings."""

    faults: list[Problem] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    manifest: Kind | None = None


def check_derived(
    layout: Layout[Kind],
    folder: Path,
    name: str,
    shards: Path | None,
    indexes: Mapping[str, pa.Table],
    processors: int,
) -> Found[Kind]:
    """Check every byte of the latents or embeddings of a part; nothing where the folder does not exist.

    Args:
        layout: the layout of the kind of artifact.
        folder: data/latents/PART or data/embeddings/PART.
        name: the name of the part.
        shards: data/shards/PART; None where its manifest is damaged, which is reported elsewhere.
        indexes: the index of each split of the image shards that is valid.
        processors: the number of threads that read files.
    """
    result: Found[Kind] = Found()
    if not folder.is_dir():
        return result
    damaged = remake(folder, f"{layout.stage}@{name}")
    again = f"{layout.again} with `dvc repro {layout.stage}@{name}`"
    try:
        _, manifest = sealed(folder, layout.kind, layout.manifest)
    except ArtifactError as error:
        result.faults.append(unreliable(folder, error, damaged))
        return result
    result.manifest = manifest
    result.bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if manifest.part != name:
        result.faults.append(Problem(folder / NAME, "is of another part", again, detail=manifest.part))
    if shards is not None and manifest.shards != manifest_hash(shards):
        result.faults.append(Problem(folder / NAME, f"says that they were made from other images than {shards}", again))
    for split, metadata in stored_splits(manifest).items():
        result.rows += sum(entry.images for entry in metadata.shards)
        result.faults += _index(layout, folder / split, metadata, indexes.get(split), damaged, again)
    with ThreadPoolExecutor(max(1, processors)) as pool:
        for fault in pool.map(lambda file: _file(file[0], file[1], damaged), layout.files(manifest, folder)):
            result.faults += [] if fault is None else [fault]
    return result


def _index(
    layout: Layout[Kind], folder: Path, metadata: DerivedSplit[Any], images: pa.Table | None, damaged: str, again: str
) -> Iterator[Problem]:
    """Yield the errors of the index of a split, whose image shards have the index `images`."""
    shards = [entry.images for entry in metadata.shards]
    table = read_index(folder, layout.schema, shards, metadata.index_sha256, damaged)
    if isinstance(table, Problem):
        yield table
        return
    if metadata.images != table.num_rows:
        yield Problem(folder.parent / NAME, "has other counts than its index", damaged, detail=folder.name)
    if images is not None:
        yield from _other_rows(folder / INDEX, table, images, again)


def _other_rows(path: Path, made: pa.Table, images: pa.Table, remedy: str) -> Iterator[Problem]:
    """Yield an error for each row that belongs to another image than the same row of the image shards."""
    if made.num_rows != images.num_rows:
        detail = f"{made.num_rows:,}, and {images.num_rows:,} images"
        yield Problem(path, "has another number of rows than the image shards", remedy, detail=detail)
        return
    for column in ("key", "label"):
        if made[column].equals(images[column]):
            continue
        pairs = zip(made[column].to_pylist(), images[column].to_pylist(), strict=True)
        for row, (one, other) in enumerate(pairs):
            if one != other:
                detail = f"row {row:,}: {one}, and {other}"
                what = f"has another {column} than the same row of the image shards"
                yield Problem(path, what, remedy, made["key"][row].as_py(), detail)


def _file(path: Path, sha256: str, remedy: str) -> Problem | None:
    """Return the error of a file; None: the file is valid."""
    if not path.is_file():
        return Problem(path, "is missing", remedy)
    if sha256_file(path) != sha256:
        return Problem(path, "is damaged: its sha256 is not that of the manifest", remedy)
    return None


def _latent_files(manifest: Latents, folder: Path) -> list[tuple[Path, str]]:
    files = [
        (folder / split / f"{entry.name}.safetensors", entry.sha256)
        for split, metadata in stored_splits(manifest).items()
        for entry in metadata.shards
    ]
    return files if manifest.codebook is None else [*files, (folder / CODEBOOK, manifest.codebook.sha256)]


def _embedding_files(manifest: Embeddings, folder: Path) -> list[tuple[Path, str]]:
    return [
        (folder / split / file_name(what, entry.name), sha256)
        for split, metadata in stored_splits(manifest).items()
        for entry in metadata.shards
        for what, sha256 in entry.sha256.items()
    ]


LATENT_LAYOUT = Layout(LATENTS_KIND, Latents, LATENTS, "encode_latents", "encode them again", _latent_files)
EMBEDDING_LAYOUT = Layout(EMBEDDINGS_KIND, Embeddings, EMBEDDINGS, "embed_clip", "make them again", _embedding_files)
