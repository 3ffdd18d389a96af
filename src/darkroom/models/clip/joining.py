"""Imported embeddings, after a check that this CLIP made them; missing ones are computed."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from darkroom.data.embedding_imports import Found
from darkroom.data.reader import ImageShards, Shard
from darkroom.errors import DarkroomError
from darkroom.models.clip.embedding import Embedder, normalised
from darkroom.remote import redacted

_LOOKED_AT = 16  # number of images of a part that are compared
# Minimum mean cosine with this CLIP's embeddings of the stored images. Other resizing and cropping leaves about 0.9;
# the embeddings of two CLIPs are unrelated.
_LEAST = 0.5
_UNIT = 0.01  # tolerance of the length of a normalised row


class Import(Protocol):
    """Imported embeddings: see `darkroom.data.embedding_imports`."""

    @property
    def names(self) -> list[str]:
        """The imported kinds of embeddings, of image, text and encoding."""
        ...

    def shard(self, reader: ImageShards, shard: Shard) -> Mapping[str, Found]:
        """Return the rows of a shard's images."""
        ...


class Joined:
    """Imported embeddings, joined to the images by key; kinds that are not imported are computed.

    Args:
        given: the imported embeddings.
        embedder: the embedder of the present CLIP.
        compute: whether to compute the embeddings of images that the import lacks; False: raise.
    """

    def __init__(self, given: Import, embedder: Embedder, compute: bool) -> None:
        self.given, self.embedder, self.compute = given, embedder, compute
        self.taken = self.computed = 0
        self._looked = False

    def shard(self, reader: ImageShards, shard: Shard, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return `image`, `text` and `encoding` of a shard, as requested.

        Raises:
            DarkroomError: an image has no embedding, or the embeddings have another length, come from another CLIP, or
                are normalised against `embed_clip.normalise`; the message names shard and key.
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

    def summary(self) -> str:
        """Return the numbers of imported and computed embeddings as text."""
        return f"{self.taken:,} of them by others" + (f", {self.computed:,} computed" if self.computed else "")

    def _like_ours(self, name: str, each: Found, wanted: NDArray[np.bool_], where: str) -> NDArray[Any]:
        """Return imported rows in the form of computed ones: zero for images without one, normalised where required."""
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
                f"{redacted(shard.tar)}: the image embeddings that are imported, from {key} on, are not those of the "
                f"CLIP in models/clip (mean cosine {cosine:.2f}): name the CLIP that made them under "
                "`train_clip.pretrained`, or another folder."
            )
