"""Encodes a part's image shards: one file of latents for each, row i of the latents = row i of the index."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import read_manifest, write_manifest
from darkroom.data.index import LATENTS, IndexWriter
from darkroom.data.latent_file import (
    KIND,
    MIRRORED,
    TENSORS,
    LatentFile,
    map_latent_shard,
    to_float32,
    write_latent_shard,
)
from darkroom.data.reader import ImageShards, Shard
from darkroom.errors import DarkroomError
from darkroom.network import redacted

_GROUP = 1024  # images decoded at once
_LARGEST = 80  # of a logvar: its exp still fits a float32

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]
Encode = Callable[[NDArray[np.uint8]], Pair]


def write_latents(
    folder: Path,
    part: str,
    images: Mapping[str, ImageShards],
    encode: Encode,
    dtype: str,
    tokenizer: str,
    shape: tuple[int, int, int],
) -> dict[str, Any]:
    """Replace `folder` by `{train,val,test}/00000.safetensors`, their indexes, and manifest.json; return the manifest.

    Args:
        folder: data/latents/PART; it appears whole or not at all.
        part: its name.
        images: the part's image shards of each split, from `ImageShards.open_parts([part], split)`. Where a mirror
            image is as true as the image, mirror images are encoded too.
        encode: maps uint8 (N, C, H, W), N up to 1024, to mean and logvar, each float32 (N, *shape). It pads its own
            batches, so that an image's latent does not depend on its company.
        dtype: float32 or bfloat16, as stored.
        tokenizer: the hash of the tokenizer behind `encode`, which consumers compare with theirs.
        shape: (c, h, w) of a latent.

    The manifest (kind "latents") holds part, tokenizer, shards (sha256 of the image shards' manifest), latent (shape,
    dtype), mirror (whether there are latents of mirror images), splits (images, index_sha256, and for each shard name,
    images, sha256), and statistics of the train split, from the latents as stored: count of elements a channel, sum of
    E[z] and sum of E[z²] of each channel. Of an image with a mirror image each counts half, as in training.

    Raises:
        DarkroomError: a latent is not finite or has another shape; names shard and key.
    """
    totals = _Totals(shape[0])
    splits: dict[str, Any] = {}
    mirror = any(bool(reader.mirrors.any()) for reader in images.values())
    with atomic_folder(folder) as temporary:
        for split, reader in images.items():
            (temporary / split).mkdir()
            index = IndexWriter(temporary / split, LATENTS)
            entries = []
            for number, shard in enumerate(reader.shards):
                reader.prefetch(reader.shards[number + 1 : number + 2])
                path = temporary / split / f"{shard.name}.safetensors"
                write_latent_shard(path, _encode_shard(reader, shard, encode, mirror), dtype)
                stored, texts = map_latent_shard(path), reader.texts(shard)
                hashes = {"sha256": _hashes(stored, TENSORS)}
                if mirror:
                    hashes["sha256_mirror"] = _hashes(stored, MIRRORED)
                index.add([row | {name: each[at] for name, each in hashes.items()} for at, row in enumerate(texts)])
                for names in (TENSORS, MIRRORED) if mirror else (TENSORS,):
                    mean, logvar = (to_float32(stored.tensor(name)) for name in names)
                    _check(mean, logvar, shape, shard, texts)
                    if split == "train":
                        totals.add(mean, logvar, 0.5 if mirror else 1.0)
                entries.append(
                    {
                        "name": shard.name,
                        "images": shard.images,
                        "sha256": sha256_file(path),
                    }
                )
            splits[split] = {"images": len(reader), "shards": entries, "index_sha256": index.close()}
        write_manifest(
            temporary,
            KIND,
            part=part,
            tokenizer=tokenizer,
            shards=next(iter(images.values())).sources[part],
            latent={"shape": list(shape), "dtype": dtype},
            mirror=mirror,
            splits=splits,
            statistics=totals.facts(),
        )
    return read_manifest(folder, KIND)


class _Totals:
    """Sums over latents of z ~ N(mean, exp(logvar)): E[z] = mean, E[z²] = mean² + exp(logvar). float64."""

    def __init__(self, channels: int) -> None:
        self._count = 0.0
        self._sum = np.zeros(channels)
        self._squares = np.zeros(channels)

    def add(self, mean: NDArray[np.float32], logvar: NDArray[np.float32], weight: float) -> None:
        """Add (n, C, h, w) latents, each of which counts as `weight` images, 1 or 1/2."""
        mean64 = mean.astype(np.float64)
        self._count += weight * mean64[:, 0].size
        self._sum += weight * mean64.sum(axis=(0, 2, 3))
        self._squares += weight * (mean64**2 + np.exp(logvar.astype(np.float64))).sum(axis=(0, 2, 3))

    def facts(self) -> dict[str, Any]:
        """Return what the manifest holds."""
        return {"count": int(self._count), "sum": self._sum.tolist(), "sum_of_squares": self._squares.tolist()}


def _encode_shard(reader: ImageShards, shard: Shard, encode: Encode, mirror: bool) -> dict[str, NDArray[np.float32]]:
    stop = shard.first + shard.images
    pieces: dict[str, list[NDArray[np.float32]]] = {}
    for start in range(shard.first, stop, _GROUP):
        images = reader.__getitems__(range(start, min(start + _GROUP, stop)))
        found = dict(zip(TENSORS, encode(images), strict=True))
        if mirror:
            found |= dict(zip(MIRRORED, encode(np.ascontiguousarray(images[..., ::-1])), strict=True))
        for name, values in found.items():
            pieces.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in pieces.items()}


def _hashes(stored: LatentFile, names: Sequence[str]) -> list[bytes]:
    """Return the SHA-256 of each row's bytes, of one tensor after the other."""
    return [
        hashlib.sha256(b"".join(values.data for values in row)).digest()
        for row in zip(*(stored.tensor(name) for name in names), strict=True)
    ]


def _check(
    mean: NDArray[np.float32],
    logvar: NDArray[np.float32],
    shape: tuple[int, ...],
    shard: Shard,
    texts: list[dict[str, Any]],
) -> None:
    expected = (shard.images, *shape)
    if mean.shape != expected or logvar.shape != expected:
        raise DarkroomError(
            f"{redacted(shard.tar)}: the tokenizer made latents of shape {mean.shape} and {logvar.shape}, not "
            f"{expected}."
        )
    sound = (np.isfinite(mean) & np.isfinite(logvar) & (logvar < _LARGEST)).all(axis=(1, 2, 3))
    if not sound.all():
        key = texts[int(np.argmin(sound))]["key"]
        raise DarkroomError(
            f"{redacted(shard.tar)}: the latent of the image {key} is not finite, or its logvar is above {_LARGEST}: "
            "the tokenizer diverged; train it again with a lower learning rate."
        )
