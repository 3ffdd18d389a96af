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

_GROUPS, _ROWS = 4, 8  # pairs in a row of the grid, and rows
CONDITIONS: tuple[Literal["image"], Literal["encoding"]] = ("image", "encoding")

# From rows to image embeddings (N, D) and text encodings (N, L, W), or None where the decoder does not read them.
Condition = Callable[[Sequence[int]], tuple[Tensor | None, Tensor | None]]


def open_decoder(section: Decoding, names: list[str], seed: int, device: torch.device) -> Decoder:
    """Return the decoder of `models/decoder` on a device, sampled as the section says, with noise of a seed."""
    cascade = Cascade.open(names, section.weights).to(device)
    sampling = {stage.name: section.sampling(stage.name) for stage in cascade.stages}
    return Decoder(cascade, sampling, seed, section.batch)


def sampler_of(decoder: Decoder, section: Decoding, leaving_out: set[str]) -> dict[str, Any]:
    """Return the manifest's entry on how the decoder samples: the section, with the U-Nets in use."""
    settings = section.model_dump(exclude=leaving_out)
    drawing = {stage.name for stage in decoder.cascade.stages}
    settings["unets"] = {name: values for name, values in settings["unets"].items() if name in drawing}
    return settings


def conditioned_by(decoder: Decoder, parts: list[str], split: str, images: ImageShards) -> Condition:
    """Return a function that reads the embeddings and encodings of images.

    Raises:
        ArtifactError: they come from another CLIP than the decoder's, or have other lengths.
    """
    names = [name for name in CONDITIONS if decoder.cascade.conditioned_on(name)]
    if not names:
        return lambda rows: (None, None)
    stored = EmbeddingShards.open_parts(parts, split)
    require_same_images(stored, images)
    decoder.cascade.require_clip(stored.clip, "data/embeddings", stored.normalised)

    def read(rows: Sequence[int]) -> tuple[Tensor | None, Tensor | None]:
        arrays = stored.__getitems__(rows, names)
        image, text = (torch.from_numpy(arrays[name]).float() if name in arrays else None for name in CONDITIONS)
        return image, text

    return read


def decoded(decoder: Decoder, images: ImageShards, rows: Sequence[int], read: Condition) -> Iterator[Tensor]:
    """Yield decoded images of some rows in batches, uint8 (n, C, H, W).

    Conditions are read one batch at a time, so memory does not grow with the number of images.
    """
    for start in range(0, len(rows), decoder.batch):
        batch = rows[start : start + decoder.batch]
        low = decoder.low(torch.from_numpy(images.__getitems__(batch))) if decoder.cascade.low_size else None
        yield from decoder.images(SampleRequest(batch, *read(batch), low=low))


def samples(
    batches: Iterable[Tensor], images: ImageShards, rows: list[int], examples: dict[int, NDArray[np.uint8]]
) -> Iterator[Sample]:
    """Yield decoded images as samples with the key, label and caption of their originals.

    The images that `write_pairs` shows are stored in `examples` by row.
    """
    keys, labels, captions = images.keys, images.labels, images.captions
    shown = {rows[at] for at in evenly_spaced(_GROUPS * _ROWS, len(rows))}
    number = 0
    for batch in batches:
        for image in batch.numpy():
            row = rows[number]
            if row in shown:
                examples[row] = image.copy()
            yield Sample(key=keys[row], image=to_pil(image), label=labels[row], caption=captions[row])
            number += 1
        print(f"{number:,} images")


def write_decoded(
    out: Path,
    decoder: Decoder,
    images: ImageShards,
    rows: list[int],
    read: Condition,
    shard_size: int,
    pictures: Callable[[Path], None] = lambda folder: None,
    **metadata: Any,
) -> None:
    """Write decoded images of some rows as shards of PNG, with a grid of pairs and a manifest.

    `rows` are rows of the originals, `images`, and `read` reads their conditions; `pictures` writes additional pictures
    into the folder, and `metadata` are additional entries of the manifest.
    """
    examples: dict[int, NDArray[np.uint8]] = {}
    with atomic_folder(out) as folder:
        decoded_samples = samples(decoded(decoder, images, rows, read), images, rows, examples)
        shards = write_shards(folder, decoded_samples, shard_size, "png")
        write_pairs(folder / "grid.png", images, examples)
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


def write_pairs(path: Path, images: ImageShards, examples: Mapping[int, NDArray[np.uint8]]) -> None:
    """Write a grid of originals next to their decoded images, with captions below."""
    captions = images.captions
    groups = [np.stack([images[row], image]) for row, image in examples.items()]
    words = [captions[row] or images.keys_of([row])[0] for row in examples]
    save_png(path, captioned_grid(groups, words, _GROUPS))
