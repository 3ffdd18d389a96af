"""Write the images of `darkroom sample --out DIR` one by one, and compare each with the training images."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.catalog import load_catalog
from darkroom.data.draw import drawn
from darkroom.data.images import to_pil
from darkroom.data.reader import ImageShards
from darkroom.metrics.memorisation import COPY, judged, moved_space, search
from darkroom.metrics.nearest import reduced
from darkroom.terminal.numbers import aligned
from darkroom.terminal.terminal import with_progress
from darkroom.tools.bands import Named

TEXT = "darkroom"  # the keyword of the text chunk
_HELD_OUT = 500  # held-out images that calibrate, at most
_BATCH = 256  # training images read at once
_SHOWN = 20  # images with a line of their own, at most
_COUNTED = {COPY: "copies", "near": "near a training image", "new": "new"}


class Origin(NamedTuple):
    """What images are made of: the seed, settings as JSON values, and the hash of each model, by its folder."""

    seed: int
    settings: Mapping[str, Any]
    models: Mapping[str, str]


def write_singles(folder: Path, kind: str, rows: Sequence[Named], origin: Origin) -> str:
    """Write images as SEED-NUMBER.png with their origin as text, and return how near each is to the training images.

    The text chunk `TEXT` is JSON: name of the row under its `kind`, number of the image in its row, and origin.
    """
    table: list[tuple[str, ...]] = []
    for name, images in rows:
        for number, image in enumerate(images):
            info = PngInfo()
            info.add_text(TEXT, json.dumps({kind: name, "number": number, **origin._asdict()}, sort_keys=True))
            table.append((f"{origin.seed}-{len(table)}.png", name))
            to_pil(image).save(folder / table[-1][0], pnginfo=info)
    written = f"single images: {folder / table[0][0]} to {table[-1][0]}"
    try:
        verdicts, held_out = nearness(np.concatenate([images for _, images in rows]))
    except ArtifactError as error:
        return f"{written}\nnot compared with the training images: {error}"
    lines = aligned([(*row, " ".join(verdict)) for row, verdict in zip(table, verdicts, strict=True)], left=(0, 1, 2))
    if len(table) > _SHOWN:
        counts = Counter(word for word, *_ in verdicts)
        lines = [", ".join(f"{counts[word]:,} {text}" for word, text in _COUNTED.items() if counts[word])]
    return "\n".join([written, *lines, held_out])


def nearness(images: NDArray[np.uint8]) -> tuple[list[tuple[str, ...]], str]:
    """Return for each image "new", or "near" or `COPY` with the PART/KEY of a training image; and what real images get.

    Images are compared in pixels, at most 32 a side, also mirrored and moved. They are copies by the rule of
    `copies_moved`, and near if they lie nearer than 95 % of the held-out images.

    Args:
        images: uint8 (N, C, H, W).

    Raises:
        ArtifactError: the training images are not here or have another shape, or no image is held out.
    """
    train, unseen = (ImageShards.open_parts(list(load_catalog().parts), split) for split in ("train", "test"))
    if train.image_shape != images.shape[1:] or not len(unseen):
        raise ArtifactError(f"they have the shape {train.image_shape}, and {len(unseen)} images are held out.")
    others = unseen.__getitems__(drawn(len(unseen), _HELD_OUT))
    pixels = torch.cat([reduced(torch.from_numpy(each)) for each in (images, others)])
    spaces, real = {"moved": moved_space(pixels)}, slice(len(images), None)

    def progress(batches: Iterator[Tensor]) -> Iterator[Tensor]:
        return with_progress(batches, len(train), "training images")

    near = search(spaces, train, real, _BATCH, torch.device("cpu"), progress)["moved"]
    words, rows = judged(near, real), near.row.tolist()[: len(images)]
    parts = [next(shard.folder.parent.name for shard in reversed(train.shards) if shard.first <= row) for row in rows]
    places = [f"{part}/{key}" for part, key in zip(parts, train.keys_of(rows), strict=True)]
    verdicts = [(word, place)[: 1 + (word != "new")] for word, place in zip(words, places, strict=False)]
    copies, close = (words[real].count(word) / len(others) for word in (COPY, "near"))
    return verdicts, f"Of {len(others):,} held-out images {copies:.1%} are copies and {close:.1%} near by this rule."
