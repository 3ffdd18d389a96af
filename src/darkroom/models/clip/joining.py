"""Embeddings that others have made in place of our own, after looking whether it was this CLIP that made them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from darkroom.data.embedding_imports import Found
from darkroom.data.reader import ImageShards, Shard
from darkroom.errors import DarkroomError
from darkroom.models.clip.embedding import Embedder, normalised
from darkroom.urls import redacted

_LOOKED_AT = 16  # images of a part
# Least mean cosine to what this CLIP makes of the stored images. They were resized and cropped otherwise, which leaves
# about 0.9; the embeddings of two CLIPs have nothing to do with each other.
_LEAST = 0.5
_UNIT = 0.01  # by which the length of a normalised row may differ from 1


class Import(Protocol):
    """Embeddings by others: see `darkroom.data.embedding_imports`."""

    @property
    def names(self) -> list[str]:
        """What is taken over: image, text, encoding."""
        ...

    def shard(self, reader: ImageShards, shard: Shard) -> Mapping[str, Found]:
        """Return the rows of a shard's images."""
        ...


class Joined:
    """Embeddings by others, joined to the images on their keys; what they lack is computed.

    Args:
        given: theirs.
        embedder: ours.
        compute: compute the image's embedding where theirs has none; False: refuse it.
    """

    def __init__(self, given: Import, embedder: Embedder, compute: bool) -> None:
        self.given, self.embedder, self.compute = given, embedder, compute
        self.taken = self.computed = 0
        self._looked = False

    def shard(self, reader: ImageShards, shard: Shard, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return `image`, `text` and `encoding` of a shard, as requested.

        Raises:
            DarkroomError: an image has no embedding, they have another length, another CLIP made them, or they are
                normalised and should not be; names shard and key.
        """
        theirs = {name: found for name, found in self.given.shard(reader, shard).items() if name in names}
        texts = reader.texts(shard)
        captioned = np.array([row["caption"] is not None for row in texts], dtype=bool)
        found = self.embedder.shard(reader, shard, [name for name in names if name not in theirs])
        where = redacted(shard.tar)
        for name, each in theirs.items():
            wanted = np.ones(len(texts), dtype=bool) if name == "image" else captioned
            missing = np.flatnonzero(wanted & ~each.present)
            values = self._like_ours(name, each, wanted, where)
            if len(missing):
                values[missing] = self._ours(reader, shard, name, missing, texts[missing[0]]["key"])
            found[name] = values
            if name == "image":
                self.taken, self.computed = self.taken + len(texts) - len(missing), self.computed + len(missing)
                self._look(reader, shard, each)
        return found

    def told(self) -> str:
        """Return how many images have theirs."""
        return f"{self.taken:,} of them by others" + (f", {self.computed:,} computed" if self.computed else "")

    def _like_ours(self, name: str, each: Found, wanted: NDArray[np.bool_], where: str) -> NDArray[Any]:
        """Return their rows as ours would be: zero where none is wanted, normalised if ours are."""
        clip = self.embedder.clip
        row = (clip.context_length, clip.text_width) if name == "encoding" else (clip.embed_dim,)
        if each.values.shape[1:] != row:
            raise DarkroomError(
                f"{where}: the {name} embeddings that are imported have shape {each.values.shape[1:]}, and those of "
                f"the CLIP in models/clip {row}: name the CLIP that made them under `train_clip.pretrained`."
            )
        values = np.where(wanted.reshape(-1, *(1 for _ in row)), each.values, 0)
        if name == "encoding":
            return values
        if self.embedder.normalise:
            return normalised(values)
        lengths = np.sqrt((values[wanted & each.present] ** 2).sum(axis=1))
        if len(lengths) and np.abs(lengths - 1).max() < _UNIT:
            raise DarkroomError(
                f"{where}: the {name} embeddings that are imported are normalised, and `embed_clip.normalise` is "
                "false: set it to true, for their length is lost."
            )
        return values

    def _ours(self, reader: ImageShards, shard: Shard, name: str, missing: NDArray[Any], key: str) -> NDArray[Any]:
        if not self.compute:
            raise DarkroomError(
                f"{redacted(shard.tar)}: {len(missing):,} of {shard.images:,} images have no {name} embedding among "
                f"those that are imported, the first is {key}: set `embed_clip.imported.missing` to compute."
            )
        if name == "image":
            return self.embedder.images(reader, (shard.first + missing).tolist())
        return self.embedder.shard(reader, shard, [name])[name][missing]

    def _look(self, reader: ImageShards, shard: Shard, each: Found) -> None:
        """Compare their first embeddings with ours, once a part."""
        rows = np.flatnonzero(each.present)[:_LOOKED_AT]
        if self._looked or not len(rows):
            return
        self._looked = True
        ours = normalised(self.embedder.images(reader, (shard.first + rows).tolist()))
        cosine = float((ours * normalised(each.values[rows])).sum(axis=1).mean())
        if cosine < _LEAST:
            key = reader.keys_of([shard.first + int(rows[0])])[0]
            raise DarkroomError(
                f"{redacted(shard.tar)}: the image embeddings that are imported, from {key} on, are not those of the "
                f"CLIP in models/clip (mean cosine {cosine:.2f}): name the CLIP that made them under "
                "`train_clip.pretrained`, or another folder."
            )
