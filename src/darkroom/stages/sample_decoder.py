"""Stage `sample_decoder`: the cascade and a split's embeddings in, `samples/decoder/` out."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import write_manifest
from darkroom.data.captioned_grid import captioned_grid
from darkroom.data.catalog import load_catalog
from darkroom.data.embeddings import EmbeddingShards, require_same_images
from darkroom.data.grid import image_grid, opaque, save_png, spread
from darkroom.data.images import to_pil
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards
from darkroom.device import set_up_device
from darkroom.generators.cascade import Cascade, trained
from darkroom.generators.decode import Decoder
from darkroom.generators.member import Asked
from darkroom.generators.variations import COLUMNS, inpainted, interpolations, variations
from darkroom.schemas.sample_decoder import Decoding, Params, SampleDecoder

OUT = Path("samples/decoder")
_GROUPS, _ROWS = 4, 8  # of the grid: pairs in a row, and rows
_TOLD: tuple[Literal["image"], Literal["encoding"]] = ("image", "encoding")


def open_decoder(section: Decoding, names: list[str], seed: int, device: torch.device) -> Decoder:
    """Return the decoder of `models/decoder` on a device, sampled as the section says, with noise of a seed."""
    cascade = Cascade.open(names, section.weights).to(device)
    sampling = {member.name: section.sampling(member.name) for member in cascade.members}
    return Decoder(cascade, sampling, seed, section.batch)


def told_by(
    decoder: Decoder, parts: list[str], split: str, images: ImageShards, rows: list[int]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the image embeddings (N, D) and text encodings (N, L, W) of some rows, as far as the decoder is told them.

    Raises:
        ArtifactError: they come from another CLIP than the decoder was trained with, or are of other lengths.
    """
    cascade = decoder.cascade
    names = [name for name in _TOLD if cascade.told(name)]
    if not names:
        return None, None
    stored = EmbeddingShards.open_parts(parts, split)
    require_same_images(stored, images)
    cascade.require_clip(stored.clip, "data/embeddings", stored.normalised)
    found = stored.__getitems__(rows, names)
    image, text = (torch.from_numpy(found[name]).float() if name in found else None for name in _TOLD)
    return image, text


def samples(
    batches: Iterable[Tensor], images: ImageShards, rows: list[int], kept: dict[int, NDArray[np.uint8]]
) -> Iterator[Sample]:
    """Yield decoded images as samples with key, label and caption of those they were made of.

    Those that `write_pairs` shows are kept, by their row.
    """
    keys, labels, captions = images.keys, images.labels, images.captions
    shown = {rows[at] for at in spread(_GROUPS * _ROWS, len(rows))}
    number = 0
    for batch in batches:
        for image in batch.numpy():
            row = rows[number]
            if row in shown:
                kept[row] = image.copy()
            yield Sample(key=keys[row], image=to_pil(image), label=labels[row], caption=captions[row])
            number += 1
        print(f"{number:,} images")


def write_pairs(path: Path, images: ImageShards, kept: Mapping[int, NDArray[np.uint8]], scale: int = 2) -> None:
    """Write a grid of originals beside what was made of them, captions below."""
    captions = images.captions
    groups = [np.stack([images[row], made]) for row, made in kept.items()]
    words = [captions[row] or images.keys_of([row])[0] for row in kept]
    save_png(path, captioned_grid(groups, words, _GROUPS, scale))


def _pictures(
    folder: Path, section: SampleDecoder, decoder: Decoder, images: ImageShards, told: tuple[Tensor | None, ...]
) -> None:
    """Write the further pictures that the section asks for, of the first rows."""
    image, text = told
    asked = section.pictures
    if image is None:
        print("no U-Net is told an image embedding: nothing to vary, no further pictures")
        return
    for name, count, columns in (
        ("variations", asked.variations, 1 + COLUMNS),
        ("interpolations", 2 * asked.interpolations, 2 + COLUMNS),
        ("inpainted", asked.inpainted, 3),
    ):
        count = min(count, len(image))
        if not count or (name == "interpolations" and count < 2):
            continue
        real, words = images.__getitems__(range(count)), None if text is None else text[:count]
        if name == "variations":
            found = variations(decoder, real, image[:count], words)
        elif name == "interpolations":
            found = interpolations(decoder, real, image[:count], words)
        else:
            found = inpainted(decoder, real, image[:count], words, asked.resamples)
        save_png(folder / f"{name}.png", image_grid(opaque(found), columns, scale=2))
        print(name)


def write_no_samples(folder: Path, reason: str) -> None:
    """Write samples without an image."""
    with atomic_folder(folder) as temporary:
        write_manifest(temporary, "samples", images=0, classes=[], sampler={}, reason=reason, files={})
    print(f"{reason}: no images")


def run(params: Params) -> None:
    """Decode the embeddings of a split's first images, and write them beside their originals."""
    section = params.sample_decoder
    require_writable(OUT)
    names = list(params.train_decoder.unets)
    if not trained(names):
        write_no_samples(OUT, "no U-Net is trained")
        return
    device = set_up_device(section.threads, params.run.device)
    catalog = load_catalog(shards=None)
    parts = list(catalog.parts)
    images = ImageShards.open_parts(parts, section.split)
    rows = list(range(min(section.images or len(images), len(images))))
    decoder = open_decoder(section, names, section.seed, device)
    image, text = told_by(decoder, parts, section.split, images, rows)
    low = decoder.low(torch.from_numpy(images.__getitems__(rows))) if decoder.cascade.low_size else None
    kept: dict[int, NDArray[np.uint8]] = {}
    with atomic_folder(OUT) as folder:
        batches = decoder.images(Asked(rows, image, text, low))
        shards = write_shards(folder, samples(batches, images, rows, kept), section.shard_size, "png")
        write_pairs(folder / "grid.png", images, kept)
        _pictures(folder, section, decoder, images, (image, text))
        write_manifest(
            folder,
            "samples",
            images=len(rows),
            image_shape=list(decoder.image_shape),
            classes=list(catalog.classes),
            model=decoder.cascade.identity,
            condition="image" if image is not None else "none" if text is None else "encoding",
            clip=decoder.cascade.clip,
            split=section.split,
            sampler=section.model_dump(exclude={"threads", "shard_size", "pictures"}),
            files={path.name: sha256_file(path) for path in sorted(folder.glob("*.png"))},
            **shards,
        )
