"""Write images of `darkroom sample --out DIR` one by one, and compare each with the training images."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL.PngImagePlugin import PngInfo

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.catalog import load_catalog
from darkroom.data.draw import drawn
from darkroom.data.images import to_pil
from darkroom.data.reader import ImageShards
from darkroom.terminal.numbers import aligned
from darkroom.terminal.terminal import with_progress

TEXT = "darkroom"  # the keyword of the text chunk
_HELD_OUT = 500  # maximum of held-out images that calibrate
_BATCH = 256  # training images read at once
_SHOWN = 20  # maximum images with a line of their own


class Origin(NamedTuple):
    """What images are made of: the seed, settings as JSON values, and the hash of each model, by its folder."""

    seed: int
    settings: Mapping[str, Any]
    models: Mapping[str, str]


def write_singles(
    folder: Path,
    rows: Sequence[tuple[Mapping[str, str], NDArray[np.uint8]]],
    origin: Origin,
) -> str:
    """Write images as SEED-NUMBER.png with their origin as text, and return how near each is to the training images.

    The text chunk `TEXT` is JSON: the class or caption of a row, the number of the image in its row, and the origin.

    Args:
        folder: the folder, created if missing.
        rows: what each row shows, by kind, and its images, uint8 (N, C, H, W).
        origin: of all images.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names: list[tuple[str, str]] = []
    for shown, images in rows:
        for number, image in enumerate(images):
            facts = {**shown, "number": number, **origin._asdict()}
            info = PngInfo()
            info.add_text(TEXT, json.dumps(facts, sort_keys=True))
            names.append((f"{origin.seed}-{len(names)}.png", next(iter(shown.values()))))
            to_pil(image).save(folder / names[-1][0], pnginfo=info)
    written = f"single images: {folder / names[0][0]} to {names[-1][0]}"
    try:
        verdicts, held_out = nearness(np.concatenate([images for _, images in rows]))
    except ArtifactError as error:
        return f"{written}\nnot compared with the training images: {error}"
    if len(names) > _SHOWN:
        counts = Counter(verdict.split(" ")[0] for verdict in verdicts)
        lines = [", ".join(f"{count:,} {_WORDS[word]}" for word, count in sorted(counts.items()))]
    else:
        lines = aligned([(*name, verdict) for name, verdict in zip(names, verdicts, strict=True)], left=(0, 1, 2))
    return "\n".join([written, *lines, held_out])


_WORDS = {"a": "copies", "near": "near a training image", "new": "new"}  # by the first word of a verdict


def nearness(images: NDArray[np.uint8]) -> tuple[list[str], str]:
    """Return "new", "near PART/KEY" or "a copy of PART/KEY" for each image, and what held-out images get.

    Images are compared in pixels, at most 32 a side, also mirrored and moved, with all training images. They are copies
    by the rule of `copies_moved`, and near if they lie nearer than 95 % of the held-out images.

    Args:
        images: uint8 (N, C, H, W).

    Raises:
        ArtifactError: the training images are not here, have another shape, or the held-out ones are too few.
    """
    import torch

    from darkroom.metrics.memorisation import COPY, judged, moved_space, search
    from darkroom.metrics.nearest import reduced

    parts = list(load_catalog().parts)
    train, unseen = (ImageShards.open_parts(parts, split) for split in ("train", "test"))
    if train.image_shape != images.shape[1:] or len(unseen) < 2:
        raise ArtifactError(f"{len(unseen)} held-out images of shape {train.image_shape} cannot calibrate it.")
    others = unseen.__getitems__(drawn(len(unseen), _HELD_OUT))
    pixels = torch.cat([reduced(torch.from_numpy(each)) for each in (images, others)])
    real = slice(len(images), None)

    def progress(batches: Any) -> Any:
        return with_progress(batches, len(train), "training images")

    near = search({"moved": moved_space(pixels)}, train, real, _BATCH, torch.device("cpu"), progress)["moved"]
    words = judged(near, real)
    rows = near.row.tolist()[: len(images)]
    places = (f"{_part_of(train, row)}/{key}" for row, key in zip(rows, train.keys_of(rows), strict=True))
    verdicts = [word if word == "new" else f"{word} {place}" for word, place in zip(words, places, strict=False)]
    copies, close = (words[real].count(word) / len(others) for word in (COPY, "near"))
    return verdicts, f"Of {len(others):,} held-out images {copies:.1%} are copies and {close:.1%} near by this rule."


def _part_of(images: ImageShards, row: int) -> str:
    return next(shard.folder.parent.name for shard in reversed(images.shards) if shard.first <= row)
