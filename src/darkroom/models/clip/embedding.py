"""Computes embeddings of the images and captions of a shard, at a fixed batch size, with read-ahead."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.data.reader import ImageShards, Shard
from darkroom.models.clip.network import Clip
from darkroom.models.clip.text import to_tensor, tokens_of
from darkroom.remote import redacted

Array = NDArray[Any]


def normalised(values: Array) -> NDArray[np.float32]:
    """Return rows (N, D) of length 1, x / |x|; a row of zeros is unchanged."""
    wide = values.astype(np.float32)
    length = np.sqrt(np.einsum("nd,nd->n", wide, wide, dtype=np.float64))[:, None]
    return (wide / np.where(length > 0, length, 1)).astype(np.float32)


class Embedder:
    """Embeds shards with a CLIP.

    Every batch has `batch` rows, and the last one is padded: an embedding does not depend on the number of rows.

    Args:
        clip: the network, on its device.
        batch: the number of images, or texts, in a forward pass.
        normalise: whether embeddings of images and texts are scaled to length 1.
        encodings: whether to return text encodings too.
    """

    def __init__(self, clip: Clip, batch: int, normalise: bool, encodings: bool) -> None:
        self.clip, self.batch, self.normalise, self.encodings = clip, batch, normalise, encodings

    def shard(self, reader: ImageShards, shard: Shard, names: Sequence[str]) -> dict[str, Array]:
        """Return `image` (n, D) float32, `text` (n, D) float32 and `encoding` (n, L, W) float16, as requested.

        A row of an image without a caption is zero in `text` and `encoding`.

        Raises:
            DarkroomError: a caption is too long; the message names shard and key.
        """
        found: dict[str, Array] = {}
        if "image" in names:
            found["image"] = self.images(reader, range(shard.first, shard.first + shard.images))
        if "text" in names or "encoding" in names:
            found |= self._texts(reader.texts(shard), f"of {redacted(shard.tar)}")
        return {name: found[name] for name in names}

    def images(self, reader: ImageShards, rows: Sequence[int]) -> NDArray[np.float32]:
        """Return the embeddings of the images of some rows, float32 (n, D)."""
        made = [self._embedded(pixels) for pixels in ahead(reader, rows, self.batch)]
        values = np.concatenate(made) if made else np.empty((0, self.clip.embed_dim), dtype=np.float32)
        return normalised(values) if self.normalise else values

    def _embedded(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        return self.clip.images(_padded(torch.from_numpy(pixels), self.batch)).cpu().numpy()[: len(pixels)]

    def _texts(self, rows: Sequence[Mapping[str, Any]], where: str) -> dict[str, Array]:
        """Return `text` and, where requested, `encoding`: each distinct caption is computed once."""
        places: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            if row["caption"] is not None:
                places.setdefault(row["caption"], []).append(place)
        texts = list(places)
        length, width = self.clip.context_length, self.clip.text_width

        def whose(number: int) -> str:
            return f"the image {rows[places[texts[number]][0]]['key']} {where}"

        tokens = tokens_of(texts, length, self.clip.truncate, whose)
        embeddings = np.zeros((len(rows), self.clip.embed_dim), dtype=np.float32)
        encodings = np.zeros((len(rows) if self.encodings else 0, length, width), dtype=np.float16)
        for at in range(0, len(texts), self.batch):
            batch = to_tensor(tokens[at : at + self.batch])
            made = [each.cpu().numpy() for each in self.clip.tokens(_padded(batch, self.batch))]
            for number, text in enumerate(texts[at : at + self.batch]):
                embeddings[places[text]] = made[0][number]
                if self.encodings:
                    encodings[places[text]] = made[1][number]  # in float16 at once: 40 times as large as embeddings
        return {"text": normalised(embeddings) if self.normalise else embeddings, "encoding": encodings}


def _padded(values: Tensor, batch: int) -> Tensor:
    """Return rows (n, ...) padded to `batch` with copies of the first row."""
    missing = batch - len(values)
    return torch.cat([values, values[:1].expand(missing, *values.shape[1:])]) if missing else values


def ahead(reader: ImageShards, rows: Sequence[int], size: int) -> Iterator[NDArray[np.uint8]]:
    """Yield images of some rows in order, in batches of `size`; a thread decodes the next batch in the background."""
    groups = [rows[at : at + size] for at in range(0, len(rows), size)]
    with ThreadPoolExecutor(1) as pool:
        waiting = [pool.submit(reader.__getitems__, group) for group in groups[:1]]
        for number in range(len(groups)):
            images = waiting.pop().result()
            if number + 1 < len(groups):
                waiting.append(pool.submit(reader.__getitems__, groups[number + 1]))
            yield images
