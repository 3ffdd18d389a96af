"""Write the embeddings of a part: files per image shard, in which row i is row i of the index."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import read_manifest, sha256_file, write_manifest
from darkroom.data.embeddings import COLUMNS, DTYPE, KIND, file_name, map_embeddings, row_shapes, write_array
from darkroom.data.index import EMBEDDINGS, IndexWriter
from darkroom.data.reader import ImageShards, Shard
from darkroom.errors import DarkroomError
from darkroom.remote import redacted
from darkroom.terminal.terminal import with_progress

# Returns the rows of a shard, (n, ...), in float32 or as they are stored, under `image`, `text` and `encoding`.
Embed = Callable[[ImageShards, Shard], Mapping[str, NDArray[Any]]]


def write_embeddings(
    folder: Path,
    part: str,
    images: Mapping[str, ImageShards],
    embed: Embed,
    names: Sequence[str],
    clip: str,
    normalised: bool,
    dim: int,
    encoding_shape: tuple[int, int] | None = None,
    store: Sequence[str] = ("train", "val", "test"),
    source: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Replace `folder` by `SPLIT/{img_emb,text_emb,text_enc}_00000.npy`, their indexes, manifest.json; return that.

    `folder` appears whole or not at all. `embed` returns the requested `names` of a shard, of image, text and encoding;
    rows of images without a caption are zero in `text` and `encoding`. `normalised`: embeddings of images and texts
    have length 1; encodings, (L, W) tokens and width, are never changed. Splits that `store` lacks are marked as such.

    The manifest (kind "embeddings") holds part, clip, normalised, names, dim, encoding_shape, dtype, source, shards
    (SHA-256 of the manifest of the image shards), and splits: stored, images, and for a stored split index_sha256 and
    for each shard name, images and the SHA-256 of each file.

    Raises:
        DarkroomError: a number is not finite in float16, or a shard has another number of rows than images; the
            message names shard and key.
    """
    shapes = {name: row_shapes(dim, encoding_shape)[name] for name in names}
    splits: dict[str, Any] = {}
    with atomic_folder(folder) as temporary:
        for split, reader in images.items():
            splits[split] = {"stored": split in store, "images": len(reader)}
            if split in store:
                splits[split] |= _write_split(temporary / split, part, reader, embed, shapes)
        write_manifest(
            temporary,
            KIND,
            part=part,
            clip=clip,
            normalised=normalised,
            names=list(names),
            dim=dim,
            encoding_shape=list(encoding_shape) if "encoding" in names and encoding_shape else None,
            dtype="float16",
            source=dict(source or {}),
            shards=next(iter(images.values())).sources[part],
            splits=splits,
        )
    return read_manifest(folder, KIND)


def _write_split(
    folder: Path, part: str, reader: ImageShards, embed: Embed, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    folder.mkdir()
    index, entries = IndexWriter(folder, EMBEDDINGS), []
    title, shards = f"embedded, {folder.name} of {part}", reader.shards
    for number, shard in enumerate(with_progress(shards, len(reader), title, count=lambda each: each.images)):
        reader.prefetch(shards[number + 1 : number + 2])
        embeddings, texts = embed(reader, shard), reader.texts(shard)
        hashes: dict[str, list[bytes]] = {}
        files: dict[str, str] = {}
        for name, shape in shapes.items():
            path = folder / file_name(name, shard.name)
            write_array(path, _sound(embeddings[name], (shard.images, *shape), name, shard, texts))
            stored = map_embeddings(path).array
            hashes[COLUMNS[name]] = [hashlib.sha256(row.data).digest() for row in stored]
            files[name] = sha256_file(path)
        index.add([row | {name: each[at] for name, each in hashes.items()} for at, row in enumerate(texts)])
        entries.append({"name": shard.name, "images": shard.images, "sha256": files})
    return {"shards": entries, "index_sha256": index.close()}


def _sound(
    values: NDArray[Any], shape: tuple[int, ...], name: str, shard: Shard, texts: Sequence[Mapping[str, Any]]
) -> NDArray[np.float16]:
    """Return rows in float16, after checking their shape and that they are finite."""
    if values.shape != shape:
        raise DarkroomError(f"{redacted(shard.tar)}: its {name} embeddings have shape {values.shape}, not {shape}.")
    with np.errstate(over="ignore"):  # reported below
        stored = values.astype(DTYPE, copy=False)
    finite = np.isfinite(stored.reshape(len(stored), -1)).all(axis=1)
    if not finite.all():
        key = texts[int(np.argmin(finite))]["key"]
        raise DarkroomError(
            f"{redacted(shard.tar)}: the {name} embedding of the image {key} is not finite in float16, with maximum "
            "65,504: the CLIP is broken; retrain it or use another one."
        )
    return stored
