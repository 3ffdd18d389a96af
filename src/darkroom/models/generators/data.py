"""Training data of generators: stored latents or codes with the classes or other conditions of their images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from darkroom.data.catalog import Catalog
from darkroom.data.embeddings import EmbeddingShards, require_same_images
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.device import to_device
from darkroom.models.generators.captions import Captions, asked_captions
from darkroom.models.generators.conditions import NOTHING, ConditionSource, asked_classes, asked_stored, balanced
from darkroom.models.generators.kind_settings import READ
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.training.data import Positions, StoredLatents, label_numbers
from darkroom.training.recipe import IndexedDataset


class LabelledLatents(StoredLatents):
    """Stored latents with their class numbers, `labels` int64 (N,)."""

    def __init__(self, shards: LatentShards, catalog: Catalog, seed: int = 0) -> None:
        super().__init__(shards, seed)
        self.labels = label_numbers(shards.label_column, catalog, shards.keys_of, "`train_generator`")

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the latents and class numbers of some rows, some of them mirrored or moved if positions are given."""
        return {**super().__getitems__(rows, positions), "labels": self.labels[list(rows)]}


class EmbeddedLatents(StoredLatents):
    """Stored latents with CLIP embeddings of their images or captions: `image`, `text` float16 (N, D), `encoding`.

    No latent is mirrored, and of embeddings of images none is moved: they describe the image as it is.

    Raises:
        ArtifactError: an image has no embedding, or there are no embeddings of a kind; names part and key, or the kind.
    """

    def __init__(self, shards: LatentShards, embeddings: EmbeddingShards, names: Sequence[str], seed: int = 0) -> None:
        super().__init__(shards, seed, mirror=False, shift="image" not in names)
        require_same_images(embeddings, shards)
        embeddings.__getitems__([], names)  # fails at once without any
        self.embeddings, self.names = embeddings, tuple(names)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the latents of some rows, some of them moved if positions are given, and the images' embeddings."""
        return {**super().__getitems__(rows, positions), **self.embeddings.__getitems__(rows, self.names)}


class CaptionedLatents(StoredLatents):
    """Stored latents with the tokens of their images' captions, `caption` int64 (N, L), zeros without one.

    No latent is mirrored: the caption describes the unmirrored image.
    """

    def __init__(self, shards: LatentShards, captions: Captions, seed: int = 0) -> None:
        super().__init__(shards, seed, mirror=False)
        self.captions = captions

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the latents of some rows, some of them moved if positions are given, and the images' captions."""
        tokens = self.captions.tokens[self.captions.numbers[list(rows)]]
        return {**super().__getitems__(rows, positions), "caption": tokens.astype(np.int64)}


@dataclass(frozen=True)
class GeneratorData:
    """The data that a generator is built for.

    train, val: the latents for training and validation.
    conditions: those of grids and evaluations: classes, or stored ones of the validation split.
    latents: the shards of the train split, with their statistics.
    tokenizer: that of the latents, on the training device.
    catalog: the classes.
    embeddings: those of the train split, if the condition is read from them.
    captions: those of the train split, if the network embeds them itself.
    """

    train: IndexedDataset
    val: IndexedDataset
    latents: LatentShards
    tokenizer: Tokenizer
    catalog: Catalog
    conditions: ConditionSource
    embeddings: EmbeddingShards | None = None
    captions: Captions | None = None

    @classmethod
    def open(
        cls,
        condition: str,
        embeddings: Path,
        captions: Path,
        shards: Mapping[str, LatentShards],
        tokenizer: Tokenizer,
        catalog: Catalog,
        seed: int,
        context: int | None = None,
        codes: bool = False,
    ) -> "GeneratorData":
        """Return the latents of a condition.

        Args:
            condition: that of the kind's section.
            embeddings: the folder of stored embeddings, for conditions of CLIP.
            captions: the folder of image shards, for captions.
            shards: the latents of the splits `train` and `val`.
            tokenizer: that of the latents, on the training device.
            catalog: the classes.
            seed: of the training.
            context: tokens of a caption; None: enough for nearly all.
            codes: whether the generator reads codes as such, not their vectors.
        """
        stored, known, conditions = None, None, NOTHING
        rows: Mapping[str, StoredLatents]
        if condition == "caption":
            rows, conditions = _captioned(captions, shards, catalog, context, seed)
            known = rows["train"].captions
        elif names := READ.get(condition):
            parts = list(shards["train"].sources)
            opened = {name: EmbeddingShards.open_parts(parts, name, embeddings) for name in shards}
            rows = {name: EmbeddedLatents(each, opened[name], names, seed) for name, each in shards.items()}
            stored = opened["train"]
            conditions = asked_stored(stored, condition, catalog.classes)  # raises if there is nothing to learn from
            if len(opened["val"]):
                conditions = asked_stored(opened["val"], condition, catalog.classes)
        elif condition == "none":
            rows = {name: StoredLatents(each, seed) for name, each in shards.items()}
        else:
            rows = {name: LabelledLatents(each, catalog, seed) for name, each in shards.items()}
            conditions = asked_classes(balanced(len(catalog.classes)))
        for each in rows.values():
            each.keeps_codes = codes
        return cls(rows["train"], rows["val"], shards["train"], tokenizer, catalog, conditions, stored, known)

    @property
    def class_counts(self) -> list[int] | None:
        """Images of each class in the train split; None: the classes are not read."""
        if not isinstance(self.train, LabelledLatents):
            return None
        return np.bincount(self.train.labels, minlength=len(self.catalog.classes)).tolist()

    def metadata(self) -> dict[str, Any]:
        """Return the manifest's entries on the embeddings or the captions."""
        if self.captions is not None:
            return {"context_length": self.captions.tokens.shape[1], "parts": list(self.latents.sources)}
        if self.embeddings is None:
            return {}
        return {
            "clip": self.embeddings.clip,
            "normalised": self.embeddings.normalised,
            "parts": list(self.embeddings.sources),
        }


def _captioned(
    folder: Path, shards: Mapping[str, LatentShards], catalog: Catalog, context: int | None, seed: int
) -> tuple[dict[str, CaptionedLatents], ConditionSource]:
    """Return the latents of the splits with the captions of their images, and the conditions from captions."""
    images = {name: ImageShards.open_parts(list(each.sources), name, folder) for name, each in shards.items()}
    catalog.require_parts(images["train"].sources)  # like the latents: row i is the same image
    known = Captions.of(images["train"], context)
    length = known.tokens.shape[1]
    if known.longer:
        print(
            f"{known.longer:,} of {len(known.tokens) - 1:,} different captions have more than {length} tokens "
            "(`model.context_length` of the generator) and are truncated."
        )
    val = Captions.of(images["val"], length)
    rows = {name: CaptionedLatents(shards[name], each, seed) for name, each in (("train", known), ("val", val))}
    shown = images["val"] if val.tokens.any() else images["train"]
    return rows, asked_captions(shown, catalog.classes, length)


def drawn_latents(data: Mapping[str, Tensor], normals: NDArray[np.float32]) -> tuple[Tensor, Tensor]:
    """Return latents, sampled from their distribution if it is stored, and noise, float32 (N, C, H, W) each.

    Args:
        data: the batch, see `StoredLatents`.
        normals: standard normal numbers, (N, 2 C H W) or more; the first ones draw the latents.
    """
    mean = data["mean"].float()  # exact: float32 includes bfloat16
    size = mean[0].numel()
    posterior, noise = (to_device(normals[:, at : at + size], mean.device).view_as(mean) for at in (0, size))
    if "logvar" in data:
        mean = mean + (0.5 * data["logvar"].float()).exp() * posterior
    return mean, noise


_BANDS = 4  # bands of the time, in validation


def by_time(name: str, values: Tensor, time: Tensor) -> dict[str, Tensor]:
    """Return `NAME_time_0_25`, …: values, (N,), of images whose time, (N,), lies in [0, 0.25) of the way to noise."""
    edges = [band / _BANDS for band in range(_BANDS + 1)]
    return {
        f"{name}_time_{100 * low:.0f}_{100 * high:.0f}": values[(time >= low) & ((time < high) | (high == 1))]
        for low, high in pairwise(edges)
    }
