"""Checks the embeddings of a part: every file, and that row i is the image of row i of the shards."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from darkroom.artifacts.manifest import NAME, ArtifactError, manifest_hash
from darkroom.data.embedding_file import DTYPE, KIND, file_name, map_embeddings, row_shapes
from darkroom.data.index import EMBEDDINGS
from darkroom.data.index import NAME as INDEX
from darkroom.data.splits import SPLITS
from darkroom.inspecting.faults import SNAKEMAKES, Fault, remake, unreliable
from darkroom.inspecting.indexes import read_index
from darkroom.inspecting.latents_check import other_rows, whole
from darkroom.inspecting.manifests import Embeddings, sealed

Wanted = tuple[Path, str, tuple[int, ...]]  # a file, its SHA-256 and its shape


@dataclass
class EmbeddingResult:
    """What came of the embeddings of a part; `rows` of them."""

    faults: list[Fault] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    manifest: Embeddings | None = None


def check_embeddings(
    folder: Path, name: str, shards: Path | None, indexes: Mapping[str, pa.Table], processors: int
) -> EmbeddingResult:
    """Check every byte of the embeddings of a part; splits that are not stored have none.

    Args:
        folder: data/embeddings/PART.
        name: of the part.
        shards: data/shards/PART, None where its manifest is damaged: that is another fault.
        indexes: the index of each split of the image shards that is sound.
        processors: threads that read files.
    """
    result = EmbeddingResult()
    damaged = remake(folder, f"embed_clip@{name}")
    try:
        _, embeddings = sealed(folder, KIND, Embeddings)
    except ArtifactError as error:
        result.faults.append(unreliable(folder, error, damaged))
        return result
    result.manifest = embeddings
    result.bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    embed = f"make them again with `dvc repro embed_clip@{name}`"
    if embeddings.part != name:
        result.faults.append(Fault(folder / NAME, "is of another part", embed, detail=embeddings.part))
    if shards is not None and embeddings.shards != manifest_hash(shards):
        result.faults.append(Fault(folder / NAME, f"says that they were made from other images than {shards}", embed))
    shapes = row_shapes(embeddings.dim, embeddings.encoding_shape)
    files: list[Wanted] = []
    known = {folder / NAME}
    for split in SPLITS:
        facts = getattr(embeddings.splits, split)
        if not facts.stored:
            continue
        images = [entry.images for entry in facts.shards]
        result.rows += sum(images)
        for entry in facts.shards:
            for what, sha256 in entry.sha256.items():
                path = folder / split / file_name(what, entry.name)
                files.append((path, sha256, (entry.images, *shapes[what])))
        known.add(folder / split / INDEX)
        table = read_index(folder / split, EMBEDDINGS, images, facts.index_sha256, damaged)
        if isinstance(table, Fault):
            result.faults.append(table)
            continue
        if facts.images != table.num_rows:
            result.faults.append(Fault(folder / NAME, "has other counts than its index", damaged, detail=split))
        if split in indexes:
            result.faults += other_rows(folder / split / INDEX, table, indexes[split], embed)

    def check(wanted: Wanted) -> list[Fault]:
        return _file(*wanted, damaged)

    with ThreadPoolExecutor(max(1, processors)) as pool:
        for found in pool.map(check, files):
            result.faults += found
    known |= {path for path, *_ in files}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in known and path.name != SNAKEMAKES:
            result.faults.append(Fault(path, "is of no shard, and nothing reads it", "remove it"))
    return result


def _file(path: Path, sha256: str, shape: tuple[int, ...], remedy: str) -> list[Fault]:
    """Return what is wrong with a file of embeddings."""
    if faults := whole(path, sha256, remedy):
        return faults
    try:
        file = map_embeddings(path)
    except ArtifactError as error:
        return [Fault(path, "is no file of embeddings", remedy, detail=str(error))]
    if (file.shape, file.dtype) != (shape, DTYPE):
        return [Fault(path, "has another shape or dtype than the manifest says", remedy)]
    return []
