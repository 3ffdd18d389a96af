"""Small embeddings for tests: some function of each image and of its caption."""

from pathlib import Path
from typing import Any

import numpy as np

from darkroom.data.embedding_writer import write_embeddings
from darkroom.data.reader import ImageShards
from darkroom.data.splits import SPLITS

DIM, ENCODING = 4, (3, 2)
NAMES = ("image", "text", "encoding")


def image_rows(images: np.ndarray) -> np.ndarray:
    return images[:, 0, :DIM, 0].astype(np.float32) / 64 - 1


def text_row(caption: str | None, size: int = DIM) -> np.ndarray:
    if caption is None:
        return np.zeros(size, dtype=np.float32)
    return np.array([len(caption), ord(caption[-8]), 1, *([0.5] * (size - 3))], dtype=np.float32)[:size] / 100


def embed(reader: ImageShards, shard: Any) -> dict[str, np.ndarray]:
    captions = [row["caption"] for row in reader.texts(shard)]
    rows = range(shard.first, shard.first + shard.images)
    return {
        "image": image_rows(reader.__getitems__(rows)),
        "text": np.stack([text_row(caption) for caption in captions]),
        "encoding": np.stack([text_row(caption, 6).reshape(ENCODING) for caption in captions]),
    }


def make_embeddings(shards: Path, root: Path, part: str, **changes: Any) -> dict:
    images = {split: ImageShards.open_parts([part], split, shards) for split in SPLITS}
    values = {"embed": embed, "names": NAMES, "clip": "c" * 64, "normalised": False, "dim": DIM}
    return write_embeddings(root / part, part, images, **{**values, "encoding_shape": ENCODING, **changes})
