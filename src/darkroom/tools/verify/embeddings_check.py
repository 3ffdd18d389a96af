"""The layout of data/embeddings/PART for `check_derived`; splits that are not stored have no files."""

from functools import partial
from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.embedding_file import DTYPE, KIND, file_name, map_embeddings, row_shapes
from darkroom.data.index import EMBEDDINGS
from darkroom.data.splits import SPLITS
from darkroom.tools.verify.derived_check import File, Layout, SplitEntry
from darkroom.tools.verify.manifests import Embeddings, EmbeddingSplit


def _stored(manifest: Embeddings) -> dict[str, EmbeddingSplit]:
    splits: dict[str, EmbeddingSplit] = {split: getattr(manifest.splits, split) for split in SPLITS}
    return {split: metadata for split, metadata in splits.items() if metadata.stored}


def _rows(manifest: Embeddings) -> list[SplitEntry]:
    return [
        SplitEntry(split, [entry.images for entry in metadata.shards], metadata.index_sha256, metadata.images)
        for split, metadata in _stored(manifest).items()
    ]


def _files(manifest: Embeddings, folder: Path) -> list[File]:
    shapes = row_shapes(manifest.dim, manifest.encoding_shape)
    found = []
    for split, metadata in _stored(manifest).items():
        for entry in metadata.shards:
            for what, sha256 in entry.sha256.items():
                look = partial(_look, shape=(entry.images, *shapes[what]))
                found.append(File(folder / split / file_name(what, entry.name), sha256, look))
    return found


def _look(path: Path, shape: tuple[int, ...]) -> tuple[str, str] | None:
    """Return what is wrong with a file as (what, detail); None: nothing."""
    try:
        file = map_embeddings(path)
    except ArtifactError as error:
        return "is no file of embeddings", str(error)
    if (file.shape, file.dtype) != (shape, DTYPE):
        return "has another shape or dtype than the manifest says", f"{file.dtype} {file.shape}"
    return None


EMBEDDING_LAYOUT = Layout(KIND, Embeddings, EMBEDDINGS, "embed_clip", "make them again", _rows, _files)
