"""Encode the image shards of a part: one file of latents per shard, with the rows of the index."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import read_manifest, sha256_file, write_manifest
from darkroom.data.index import LATENTS, IndexWriter, schema_of
from darkroom.data.latent_file import (
    CODEBOOK,
    FORMS,
    KIND,
    SHIFTS,
    LatentFile,
    code_dtype,
    map_latent_shard,
    stored_shape,
    to_float32,
    views,
    write_codebook,
    write_latent_shard,
)
from darkroom.data.reader import ImageShards, Shard
from darkroom.errors import DarkroomError
from darkroom.remote import redacted
from darkroom.terminal.terminal import with_progress

_GROUP = 1024  # images decoded at once
_LARGEST = 80  # maximum of a logvar: its exp still fits a float32

Array = NDArray[Any]
Encode = Callable[[NDArray[np.uint8]], Sequence[Array]]


def write_latents(
    folder: Path,
    part: str,
    images: Mapping[str, ImageShards],
    encode: Encode,
    dtype: str,
    tokenizer: str,
    shape: tuple[int, int, int],
    form: str = "distribution",
    codebook: NDArray[np.float32] | None = None,
    shift: int = 0,
) -> dict[str, Any]:
    """Replace `folder` by `{train,val,test}/00000.safetensors`, their indexes, and manifest.json; return the manifest.

    `folder` appears whole or not at all. `images` are those of `ImageShards.open_parts([part], split)`, by split;
    mirror images are encoded too where the manifest of the part allows them, and in train, if `shift` is not 0, images
    moved by so many pixels to each side, their edge repeated. `encode` maps uint8 (N, C, H, W), N up to 1024, to the
    tensors of the `form` (distribution, point or codes): mean and logvar, or mean alone, each float32 (N, *shape), or
    codes, integers (N, h, w). It pads its batches, so that a latent does not depend on the other images of the batch.
    `dtype` is float32 or bfloat16; codes are stored in the smallest sufficient integer type. `tokenizer` is its hash,
    which consumers compare with theirs, and `codebook` the vectors of the codes, float32 (K, c), or None.

    The manifest (kind "latents") holds part, tokenizer, shards (sha256 of the image shards' manifest), latent (form,
    shape, dtype), codebook (size and sha256, or null), mirror (whether there are latents of mirror images), shift (the
    pixels, if images are moved), splits (images, index_sha256, and for each shard name, images, sha256), and statistics
    of the train split, from the latents as stored, of codes from their vectors: number of elements per channel, sum of
    E[z] and sum of E[z²] of each channel. The views of an image count equally, as in training, together as one image.

    Raises:
        DarkroomError: a latent is not finite or has another shape, or a code has no vector; the message names shard
            and key.
    """
    if codebook is not None:
        _check_codebook(codebook, shape)
        dtype = code_dtype(len(codebook))
    names = FORMS[form]
    totals = _Totals(shape[0])
    splits: dict[str, Any] = {}
    mirror = any(bool(reader.mirrors.any()) for reader in images.values())
    with atomic_folder(folder) as temporary:
        for split, reader in images.items():
            suffixes = views(mirror, shift > 0 and split == "train")
            (temporary / split).mkdir()
            index = IndexWriter(
                temporary / split, schema_of(" ".join([*LATENTS.names, *(f"sha256{view}" for view in suffixes)]))
            )
            entries = []
            title, shards = f"encoded, {split} of {part}", reader.shards
            for number, shard in enumerate(with_progress(shards, len(reader), title, count=lambda each: each.images)):
                reader.prefetch(shards[number + 1 : number + 2])
                path = temporary / split / f"{shard.name}.safetensors"
                encoded, texts = _encode_shard(reader, shard, encode, names, suffixes, shift), reader.texts(shard)
                for values in encoded.values():
                    if values.shape != (expected := (shard.images, *stored_shape(form, shape))):
                        raise DarkroomError(
                            f"{redacted(shard.tar)}: the tokenizer made latents of shape {values.shape}, not "
                            f"{expected}."
                        )
                    if codebook is not None:  # before a code is cut to its dtype
                        _check_codes(values, len(codebook), shard, texts)
                write_latent_shard(path, encoded, dtype)
                stored = map_latent_shard(path)
                tensors = {view: [name + view for name in names] for view in suffixes}
                hashes = {f"sha256{view}": _hashes(stored, of_view) for view, of_view in tensors.items()}
                index.add([row | {name: each[at] for name, each in hashes.items()} for at, row in enumerate(texts)])
                for of_view in tensors.values():
                    mean, logvar = _latents(stored, of_view, codebook)
                    _check_finite(mean, logvar, shard, texts)
                    if split == "train":
                        totals.add(mean, logvar, 1 / len(suffixes))
                entries.append({"name": shard.name, "images": shard.images, "sha256": sha256_file(path)})
            splits[split] = {"images": len(reader), "shards": entries, "index_sha256": index.close()}
        book = None
        if codebook is not None:
            write_codebook(temporary, codebook)
            book = {"size": len(codebook), "sha256": sha256_file(temporary / CODEBOOK)}
        write_manifest(
            temporary,
            KIND,
            part=part,
            tokenizer=tokenizer,
            shards=next(iter(images.values())).sources[part],
            latent={"form": form, "shape": list(shape), "dtype": dtype},
            codebook=book,
            mirror=mirror,
            **({"shift": shift} if shift else {}),
            splits=splits,
            statistics=totals.metadata(),
        )
    return read_manifest(folder, KIND)


class _Totals:
    """Accumulate sums over latents of z ~ N(mean, exp(logvar)): E[z] = mean, E[z²] = mean² + exp(logvar). float64.

    A latent that is a point has no exp(logvar).
    """

    def __init__(self, channels: int) -> None:
        self._count = 0.0
        self._sum = np.zeros(channels)
        self._squares = np.zeros(channels)

    def add(self, mean: NDArray[np.float32], logvar: NDArray[np.float32] | None, weight: float) -> None:
        """Add (n, C, h, w) latents, each of which counts as `weight` images."""
        mean64 = mean.astype(np.float64)
        self._count += weight * mean64[:, 0].size
        self._sum += weight * mean64.sum(axis=(0, 2, 3))
        squares = mean64**2
        if logvar is not None:
            squares += np.exp(logvar.astype(np.float64))
        self._squares += weight * squares.sum(axis=(0, 2, 3))

    def metadata(self) -> dict[str, Any]:
        """Return the entry `statistics` of the manifest."""
        return {"count": round(self._count), "sum": self._sum.tolist(), "sum_of_squares": self._squares.tolist()}


def _encode_shard(
    reader: ImageShards, shard: Shard, encode: Encode, names: Sequence[str], suffixes: Sequence[str], shift: int
) -> dict[str, Array]:
    stop = shard.first + shard.images
    pieces: dict[str, list[Array]] = {}
    for start in range(shard.first, stop, _GROUP):
        images = reader.__getitems__(range(start, min(start + _GROUP, stop)))
        for view in suffixes:
            for name, values in zip(names, encode(_viewed(images, view, shift)), strict=True):
                pieces.setdefault(name + view, []).append(values)
    return {name: np.concatenate(values) for name, values in pieces.items()}


def _viewed(images: NDArray[np.uint8], view: str, shift: int) -> NDArray[np.uint8]:
    """Return a view of images, uint8 (N, C, H, W), by its name in `VIEWS`."""
    side = view.removeprefix("_mirror")
    images = images if side == view else images[..., ::-1]
    if side:
        down, right = (shift * way for way in SHIFTS[side])
        _, _, height, width = images.shape
        padded = np.pad(images, ((0, 0), (0, 0), (shift, shift), (shift, shift)), mode="edge")
        images = padded[..., shift - down : shift - down + height, shift - right : shift - right + width]
    return np.ascontiguousarray(images)


def _latents(
    stored: LatentFile, names: Sequence[str], codebook: NDArray[np.float32] | None
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return mean and, of a distribution, logvar of stored latents, (n, C, h, w); of codes, their vectors."""
    if codebook is not None:
        return np.moveaxis(codebook[stored.tensor(names[0])], -1, 1), None
    mean, *logvar = (to_float32(stored.tensor(name)) for name in names)
    return mean, logvar[0] if logvar else None


def _hashes(stored: LatentFile, names: Sequence[str]) -> list[bytes]:
    """Return the SHA-256 of each row's bytes, of one tensor after the other."""
    return [
        hashlib.sha256(b"".join(values.data for values in row)).digest()
        for row in zip(*(stored.tensor(name) for name in names), strict=True)
    ]


def _check_codebook(codebook: NDArray[np.float32], shape: tuple[int, int, int]) -> None:
    if codebook.ndim != 2 or codebook.shape[1] != shape[0] or not np.isfinite(codebook).all():
        raise DarkroomError(
            f"the codebook of the tokenizer is {codebook.shape}, but needs finite vectors of {shape[0]} channels, "
            "as in a latent: retrain the tokenizer, or store its latents with `encode_latents.latents: continuous`."
        )


def _check_codes(codes: Array, size: int, shard: Shard, texts: list[dict[str, Any]]) -> None:
    inside = ((codes >= 0) & (codes < size)).all(axis=(1, 2))
    if not inside.all():
        row = int(np.argmin(inside))
        raise DarkroomError(
            f"{redacted(shard.tar)}: the image {texts[row]['key']} has the codes {codes[row].min()} to "
            f"{codes[row].max()}, but the codebook has 0 to {size - 1}: the tokenizer is broken; retrain it."
        )


def _check_finite(
    mean: NDArray[np.float32], logvar: NDArray[np.float32] | None, shard: Shard, texts: list[dict[str, Any]]
) -> None:
    sound = np.isfinite(mean).all(axis=(1, 2, 3))
    if logvar is not None:
        sound &= (np.isfinite(logvar) & (logvar < _LARGEST)).all(axis=(1, 2, 3))
    if not sound.all():
        key = texts[int(np.argmin(sound))]["key"]
        raise DarkroomError(
            f"{redacted(shard.tar)}: the latent of the image {key} is not finite, or its logvar is above {_LARGEST}: "
            "the tokenizer diverged; retrain it with a lower learning rate."
        )
