"""Shared code of the stages that decode: the decoder, the conditions of each image, and writing images."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import sha256_file, write_manifest
from darkroom.data.draw import repeats
from darkroom.data.embeddings import EmbeddingShards, require_same_images
from darkroom.data.grid import captioned_grid, evenly_spaced, save_png
from darkroom.data.images import to_pil
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards
from darkroom.models.decoder.cascade import Cascade, Decoder
from darkroom.models.decoder.sample import SampleRequest
from darkroom.models.decoder.settings import Decoding

_GROUPS, _ROWS = 4, 8  # of the grid: pairs in a row, and rows
TOLD: tuple[Literal["image"], Literal["encoding"]] = ("image", "encoding")

# From rows to their image embeddings (N, D) and text encodings (N, L, W), as far as the decoder is told them.
Condition = Callable[[Sequence[int]], tuple[Tensor | None, Tensor | None]]


def open_decoder(section: Decoding, names: list[str], seed: int, device: torch.device) -> Decoder:
    """Return the decoder of `models/decoder` on a device, sampled as the section says, with noise of a seed."""
    cascade = Cascade.open(names, section.weights).to(device)
    sampling = {stage.name: section.sampling(stage.name) for stage in cascade.stages}
    return Decoder(cascade, sampling, seed, section.batch)


def sampler_of(decoder: Decoder, section: Decoding, leaving_out: set[str]) -> dict[str, Any]:
    """Return the manifest's entry on how the decoder samples: the section, with the U-Nets in use."""
    said = section.model_dump(exclude=leaving_out)
    drawing = {stage.name for stage in decoder.cascade.stages}
    said["unets"] = {name: values for name, values in said["unets"].items() if name in drawing}
    return said


def conditioned_by(decoder: Decoder, parts: list[str], split: str, images: ImageShards) -> Condition:
    """Return a function that reads the embeddings and encodings of images.

    Raises:
        ArtifactError: they come from another CLIP than the decoder's, or have other lengths.
    """
    names = [name for name in TOLD if decoder.cascade.conditioned_on(name)]
    if not names:
        return lambda rows: (None, None)
    stored = EmbeddingShards.open_parts(parts, split)
    require_same_images(stored, images)
    decoder.cascade.require_clip(stored.clip, "data/embeddings", stored.normalised)

    def told(rows: Sequence[int]) -> tuple[Tensor | None, Tensor | None]:
        found = stored.__getitems__(rows, names)
        image, text = (torch.from_numpy(found[name]).float() if name in found else None for name in TOLD)
        return image, text

    return told


def decoded(decoder: Decoder, images: ImageShards, rows: Sequence[int], told: Condition) -> Iterator[Tensor]:
    """Yield decoded images of some rows in batches, uint8 (n, C, H, W).

    Conditions are read one batch at a time, so memory does not grow with the number of images.
    """
    for start in range(0, len(rows), decoder.batch):
        batch = rows[start : start + decoder.batch]
        low = decoder.low(torch.from_numpy(images.__getitems__(batch))) if decoder.cascade.low_size else None
        yield from decoder.images(SampleRequest(batch, *told(batch), low=low))


def samples(
    batches: Iterable[Tensor], images: ImageShards, rows: list[int], kept: dict[int, NDArray[np.uint8]]
) -> Iterator[Sample]:
    """Yield decoded images as samples with the key, label and caption of their originals.

    The images that `write_pairs` shows are stored in `kept` by row.
    """
    keys, labels, captions = images.keys, images.labels, images.captions
    shown = {rows[at] for at in evenly_spaced(_GROUPS * _ROWS, len(rows))}
    number = 0
    for batch in batches:
        for image in batch.numpy():
            row = rows[number]
            if row in shown:
                kept[row] = image.copy()
            yield Sample(key=keys[row], image=to_pil(image), label=labels[row], caption=captions[row])
            number += 1
        print(f"{number:,} images")


def write_decoded(
    out: Path,
    decoder: Decoder,
    images: ImageShards,
    rows: list[int],
    told: Condition,
    shard_size: int,
    pictures: Callable[[Path], None] = lambda folder: None,
    **metadata: Any,
) -> None:
    """Write decoded images of some rows as shards of PNG, with a grid of pairs and a manifest.

    `rows` are rows of the originals, `images`, and `told` reads their conditions; `pictures` writes additional pictures
    into the folder, and `metadata` are additional entries of the manifest.
    """
    kept: dict[int, NDArray[np.uint8]] = {}
    with atomic_folder(out) as folder:
        made = samples(decoded(decoder, images, rows, told), images, rows, kept)
        shards = write_shards(folder, made, shard_size, "png")
        write_pairs(folder / "grid.png", images, kept)
        pictures(folder)
        write_manifest(
            folder,
            "samples",
            images=len(rows),
            image_shape=list(decoder.image_shape),
            model=decoder.cascade.fingerprint,
            images_seen=decoder.cascade.images_seen,
            distribution="frequency",
            repeats=repeats(images.keys, images.captions, rows),
            files={path.name: sha256_file(path) for path in sorted(folder.glob("*.png"))},
            **metadata,
            **shards,
        )


def write_pairs(path: Path, images: ImageShards, kept: Mapping[int, NDArray[np.uint8]]) -> None:
    """Write a grid of originals next to their decoded images, with captions below."""
    captions = images.captions
    groups = [np.stack([images[row], made]) for row, made in kept.items()]
    words = [captions[row] or images.keys_of([row])[0] for row in kept]
    save_png(path, captioned_grid(groups, words, _GROUPS))
