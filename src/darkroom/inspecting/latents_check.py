"""Checks the latents of a part: every file, and that row i is the image of row i of the shards."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import NAME, ArtifactError, manifest_hash
from darkroom.data.index import LATENTS
from darkroom.data.index import NAME as INDEX
from darkroom.data.latent_file import CODEBOOK, KIND, map_latent_shard, stored_shape
from darkroom.data.splits import SPLITS
from darkroom.inspecting.faults import SNAKEMAKES, Fault, remake, unreliable
from darkroom.inspecting.indexes import read_index
from darkroom.inspecting.manifests import LatentFile, Latents, Shape, sealed


@dataclass
class LatentResult:
    """What came of the latents of a part; `rows` of them."""

    faults: list[Fault] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    manifest: Latents | None = None


def check_latents(
    folder: Path, name: str, shards: Path | None, indexes: Mapping[str, pa.Table], processors: int
) -> LatentResult:
    """Check every byte of the latents of a part.

    Args:
        folder: data/latents/PART.
        name: of the part.
        shards: data/shards/PART, None where its manifest is damaged: that is another fault.
        indexes: the index of each split of the image shards that is sound.
        processors: threads that read files.
    """
    result = LatentResult()
    damaged = remake(folder, f"encode_latents@{name}")
    try:
        _, latents = sealed(folder, KIND, Latents)
    except ArtifactError as error:
        result.faults.append(unreliable(folder, error, damaged))
        return result
    result.manifest = latents
    result.bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    encode = f"encode them again with `dvc repro encode_latents@{name}`"
    if latents.part != name:
        result.faults.append(Fault(folder / NAME, "is of another part", encode, detail=latents.part))
    if shards is not None and latents.shards != manifest_hash(shards):
        result.faults.append(Fault(folder / NAME, f"says that they were made from other images than {shards}", encode))
    files: list[tuple[Path, LatentFile]] = []
    known = {folder / NAME}
    for split in SPLITS:
        facts = getattr(latents.splits, split)
        images = [entry.images for entry in facts.shards]
        result.rows += sum(images)
        files += [(folder / split / f"{entry.name}.safetensors", entry) for entry in facts.shards]
        known.add(folder / split / INDEX)
        table = read_index(folder / split, LATENTS, images, facts.index_sha256, damaged)
        if isinstance(table, Fault):
            result.faults.append(table)
            continue
        if facts.images != table.num_rows:
            result.faults.append(Fault(folder / NAME, "has other counts than its index", damaged, detail=split))
        if split in indexes:
            result.faults += other_rows(folder / split / INDEX, table, indexes[split], encode)

    if latents.codebook is not None:
        known.add(folder / CODEBOOK)
        result.faults += whole(folder / CODEBOOK, latents.codebook.sha256, damaged)

    def check(each: tuple[Path, LatentFile]) -> list[Fault]:
        return list(_file(each[0], each[1], latents.latent, damaged))

    with ThreadPoolExecutor(max(1, processors)) as pool:
        for found in pool.map(check, files):
            result.faults += found
    known |= {path for path, _ in files}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in known and path.name != SNAKEMAKES:
            result.faults.append(Fault(path, "is of no shard, and nothing reads it", "remove it"))
    return result


def other_rows(path: Path, latents: pa.Table, images: pa.Table, remedy: str) -> Iterator[Fault]:
    """Yield the rows of latents or embeddings that are of another image than the same row of the image shards."""
    if latents.num_rows != images.num_rows:
        detail = f"{latents.num_rows:,}, and {images.num_rows:,} images"
        yield Fault(path, "has another number of rows than the image shards", remedy, detail=detail)
        return
    for column in ("key", "label"):
        if latents[column].equals(images[column]):
            continue
        pairs = zip(latents[column].to_pylist(), images[column].to_pylist(), strict=True)
        for row, (one, other) in enumerate(pairs):
            if one != other:
                detail = f"row {row:,}: {one}, and {other}"
                what = f"has another {column} than the same row of the image shards"
                yield Fault(path, what, remedy, latents["key"][row].as_py(), detail)


def whole(path: Path, sha256: str, remedy: str) -> list[Fault]:
    """Return that a file is missing or has another SHA-256, if so."""
    if not path.is_file():
        return [Fault(path, "is missing", remedy)]
    if sha256_file(path) != sha256:
        return [Fault(path, "is damaged: its sha256 is not that of the manifest", remedy)]
    return []


def _file(path: Path, entry: LatentFile, latent: Shape, remedy: str) -> Iterator[Fault]:
    if faults := whole(path, entry.sha256, remedy):
        yield from faults
    else:
        try:
            file = map_latent_shard(path)
        except ArtifactError as error:
            yield Fault(path, "is no shard of latents", remedy, detail=str(error))
            return
        if (file.form, file.dtype_name) != (latent.form, latent.dtype):
            detail = f"{file.form} in {file.dtype_name}, and {latent.form} in {latent.dtype}"
            yield Fault(path, "has another form or dtype than the manifest says", remedy, detail=detail)
        elif file.shape != (entry.images, *stored_shape(latent.form, latent.shape)):
            yield Fault(path, "has another shape than the manifest says", remedy)
