"""Embed the images and captions of shards at a fixed batch size, or import embeddings and check their CLIP."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.data.embedding_imports import Dalle2, ImportedRows
from darkroom.data.reader import ImageShards, Shard
from darkroom.device import fill_batch
from darkroom.errors import DarkroomError
from darkroom.models.clip.network import Clip, to_tensor, tokens_of
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

        Rows of images without a caption are zero in `text` and `encoding`.

        Raises:
            DarkroomError: a caption is too long; the message names shard and key.
        """
        arrays: dict[str, Array] = {}
        if "image" in names:
            arrays["image"] = self.images(reader, range(shard.first, shard.first + shard.images))
        if "text" in names or "encoding" in names:
            arrays |= self._texts(reader.texts(shard), f"of {redacted(shard.tar)}")
        return {name: arrays[name] for name in names}

    def images(self, reader: ImageShards, rows: Sequence[int]) -> NDArray[np.float32]:
        """Return the embeddings of the images of some rows, float32 (n, D)."""
        batches = [
            self.clip.images(fill_batch(torch.from_numpy(pixels), self.batch)).cpu().numpy()[: len(pixels)]
            for pixels in ahead(reader, rows, self.batch)
        ]
        values = np.concatenate(batches) if batches else np.empty((0, self.clip.embed_dim), dtype=np.float32)
        return normalised(values) if self.normalise else values

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
            outputs = [each.cpu().numpy() for each in self.clip.tokens(fill_batch(batch, self.batch))]
            for number, text in enumerate(texts[at : at + self.batch]):
                embeddings[places[text]] = outputs[0][number]
                if self.encodings:
                    encodings[places[text]] = outputs[1][number]  # in float16 at once: 40 times as large as embeddings
        return {"text": normalised(embeddings) if self.normalise else embeddings, "encoding": encodings}


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


_LOOKED_AT = 16  # number of images of a part that are compared
# Minimum mean cosine with this CLIP's embeddings of the stored images. Other resizing and cropping leaves about 0.9;
# the embeddings of two CLIPs are unrelated.
_LEAST = 0.5
_UNIT = 0.01  # tolerance of the length of a normalised row


class Joined:
    """Imported embeddings, joined to the images by key; kinds that are not imported are computed.

    Args:
        given: the imported embeddings.
        embedder: the embedder of the present CLIP.
        compute: whether to compute the embeddings of images that the import lacks; False: raise.
    """

    def __init__(self, given: Dalle2, embedder: Embedder, compute: bool) -> None:
        self.given, self.embedder, self.compute = given, embedder, compute
        self.taken = self.computed = 0
        self._looked = False

    def shard(self, reader: ImageShards, shard: Shard, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return `image`, `text` and `encoding` of a shard, as requested.

        Raises:
            DarkroomError: an image has no embedding, or the embeddings have another length, come from another CLIP, or
                are normalised against `embed_clip.normalise`; the message names shard and key.
        """
        theirs = {name: arrays for name, arrays in self.given.shard(reader, shard).items() if name in names}
        texts = reader.texts(shard)
        captioned = np.array([row["caption"] is not None for row in texts], dtype=bool)
        arrays = self.embedder.shard(reader, shard, [name for name in names if name not in theirs])
        where = redacted(shard.tar)
        for name, each in theirs.items():
            required = np.ones(len(texts), dtype=bool) if name == "image" else captioned
            missing = np.flatnonzero(required & ~each.present)
            values = self._like_ours(name, each, required, where)
            if len(missing):
                values[missing] = self._ours(reader, shard, name, missing, texts[missing[0]]["key"])
            arrays[name] = values
            if name == "image":
                self.taken, self.computed = self.taken + len(texts) - len(missing), self.computed + len(missing)
                self._look(reader, shard, each)
        return arrays

    def summary(self) -> str:
        """Return the numbers of imported and computed embeddings as text."""
        return f"{self.taken:,} of them by others" + (f", {self.computed:,} computed" if self.computed else "")

    def _like_ours(self, name: str, each: ImportedRows, required: NDArray[np.bool_], where: str) -> NDArray[Any]:
        """Return imported rows in the form of computed ones: zero for images without one, normalised where required."""
        clip = self.embedder.clip
        row = (clip.context_length, clip.text_width) if name == "encoding" else (clip.embed_dim,)
        if each.values.shape[1:] != row:
            raise DarkroomError(
                f"{where}: the imported {name} embeddings have shape {each.values.shape[1:]}, but those of the CLIP in "
                f"models/clip have {row}: name the CLIP that made them under `train_clip.pretrained`."
            )
        values = np.where(required.reshape(-1, *(1 for _ in row)), each.values, 0)
        if name == "encoding":
            return values
        if self.embedder.normalise:
            return normalised(values)
        lengths = np.sqrt((values[required & each.present] ** 2).sum(axis=1))
        if len(lengths) and np.abs(lengths - 1).max() < _UNIT:
            raise DarkroomError(
                f"{where}: the imported {name} embeddings are normalised, but `embed_clip.normalise` is false: set it "
                "to true, because their length is lost."
            )
        return values

    def _ours(self, reader: ImageShards, shard: Shard, name: str, missing: NDArray[Any], key: str) -> NDArray[Any]:
        if not self.compute:
            raise DarkroomError(
                f"{redacted(shard.tar)}: {len(missing):,} of {shard.images:,} images have no imported {name} "
                f"embedding, the first is {key}: set `embed_clip.imported.missing` to compute."
            )
        if name == "image":
            return self.embedder.images(reader, (shard.first + missing).tolist())
        return self.embedder.shard(reader, shard, [name])[name][missing]

    def _look(self, reader: ImageShards, shard: Shard, each: ImportedRows) -> None:
        """Compare the first imported embeddings with computed ones, once for each part."""
        rows = np.flatnonzero(each.present)[:_LOOKED_AT]
        if self._looked or not len(rows):
            return
        self._looked = True
        ours = normalised(self.embedder.images(reader, (shard.first + rows).tolist()))
        cosine = float((ours * normalised(each.values[rows])).sum(axis=1).mean())
        if cosine < _LEAST:
            key = reader.keys_of([shard.first + int(rows[0])])[0]
            raise DarkroomError(
                f"{redacted(shard.tar)}: image embeddings from {key} on come from another CLIP than models/clip "
                f"(mean cosine {cosine:.2f}): name it under `train_clip.pretrained`, or use another folder."
            )
