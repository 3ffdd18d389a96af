"""Checks the latents or embeddings of a part: every file, and that row i belongs to image i."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa

from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import NAME, ArtifactError, manifest_hash
from darkroom.data.index import NAME as INDEX
from darkroom.tools.verify.indexes import read_index
from darkroom.tools.verify.manifests import Derived, sealed
from darkroom.tools.verify.problems import Problem, remake, unreliable

Kind = TypeVar("Kind", bound=Derived)


class File(NamedTuple):
    """A file in the manifest.

    look: returns what is wrong with the content of a file with the right SHA-256, as the rest of a sentence and a
        detail; None: nothing.
    """

    path: Path
    sha256: str
    look: Callable[[Path], tuple[str, str] | None]


class SplitEntry(NamedTuple):
    """A split in the manifest: the images of each shard, the hash of its index, and its number of images."""

    split: str
    shards: list[int]
    index_sha256: str
    images: int


@dataclass(frozen=True)
class Layout(Generic[Kind]):
    """The folder layout of a kind of artifact.

    kind: the kind in the manifest.
    manifest: the type of the manifest.
    schema: the schema of the index of a split.
    stage: the stage that makes the artifact.
    again: the remedy where the images have changed, as an imperative.
    rows: returns the entry of each stored split.
    files: returns all files except indexes and manifest.
    """

    kind: str
    manifest: type[Kind]
    schema: pa.Schema
    stage: str
    again: str
    rows: Callable[[Kind], list[SplitEntry]]
    files: Callable[[Kind, Path], list[File]]


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
    for rows in layout.rows(manifest):
        result.rows += sum(rows.shards)
        result.faults += _index(layout, folder, rows, indexes, damaged, again)
    with ThreadPoolExecutor(max(1, processors)) as pool:
        for fault in pool.map(lambda file: _file(file, damaged), layout.files(manifest, folder)):
            result.faults += [] if fault is None else [fault]
    return result


def _index(
    layout: Layout[Kind], folder: Path, rows: SplitEntry, indexes: Mapping[str, pa.Table], damaged: str, again: str
) -> Iterator[Problem]:
    """Yield the errors of the index of a split."""
    table = read_index(folder / rows.split, layout.schema, rows.shards, rows.index_sha256, damaged)
    if isinstance(table, Problem):
        yield table
        return
    if rows.images != table.num_rows:
        yield Problem(folder / NAME, "has other counts than its index", damaged, detail=rows.split)
    if rows.split in indexes:
        yield from _other_rows(folder / rows.split / INDEX, table, indexes[rows.split], again)


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


def _file(file: File, remedy: str) -> Problem | None:
    """Return the error of a file; None: the file is valid."""
    if not file.path.is_file():
        return Problem(file.path, "is missing", remedy)
    if sha256_file(file.path) != file.sha256:
        return Problem(file.path, "is damaged: its sha256 is not that of the manifest", remedy)
    if wrong := file.look(file.path):
        return Problem(file.path, wrong[0], remedy, detail=wrong[1])
    return None
