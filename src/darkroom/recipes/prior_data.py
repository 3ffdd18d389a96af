"""What a prior is trained on: images that have a caption, by what CLIP says of both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.artifacts.manifest import read_manifest
from darkroom.data.embedding_file import KIND
from darkroom.data.embeddings import EMBEDDING_PARTS, EmbeddingShards
from darkroom.errors import DarkroomError
from darkroom.recipes.data import Positions


class CaptionedEmbeddings:
    """Rows of images that have a caption: `image` and `text` float16 (N, D), `encoding` (N, L, W) where it is stored.

    rows: the row of each among the shards.
    """

    def __init__(self, shards: EmbeddingShards) -> None:
        self.shards = shards
        self.names = ("image", "text", *(() if shards.encoding_shape is None else ("encoding",)))
        self.rows: NDArray[np.int64] = np.array(captioned_rows(shards.captions), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the embeddings and encodings of some rows."""
        return dict(self.shards.__getitems__(self.rows[list(rows)].tolist(), self.names))

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, by which a person finds the images."""
        return self.shards.keys_of(self.rows[list(rows)].tolist())


def captioned_rows(captions: Sequence[str | None]) -> list[int]:
    """Return the rows that have a caption, in their order; the text embeddings of the others are zero."""
    return [row for row, caption in enumerate(captions) if caption is not None]


def captioned_parts(parts: Sequence[str], root: Path = EMBEDDING_PARTS) -> list[str]:
    """Return the parts of which text embeddings are stored: those that have captions.

    Raises:
        DarkroomError: none has.
    """
    found = [part for part in parts if "text" in read_manifest(root / part, KIND)["names"]]
    if not found:
        raise DarkroomError(
            "no image has a caption in data/embeddings, so there is no text to make an image of: give the source "
            "captions (`parts` and the source's section in params.yaml), and run `dvc repro`."
        )
    return found


def statistics(
    embeddings: EmbeddingShards, how: Literal["scale", "standard"], most: int = 4096
) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation by which image embeddings come to unit variance, float32 (D,) both.

    scale: 0 and the root mean square of all elements: embeddings keep their directions (as Ramesh et al.'s published
    successors have them). standard: of each element by itself: what all images have in common, which is most of the
    embedding where CLIP is small, is taken off, and the noise then hides what tells images apart.

    Args:
        embeddings: of the train split.
        how: see above.
        most: embeddings that they are taken from, evenly apart; to three digits, so that all machines find the same.

    Raises:
        DarkroomError: all embeddings are zero.
    """
    if how == "scale":
        scale = _scale(embeddings, most)
        return torch.zeros(embeddings.dim), torch.full((embeddings.dim,), 1 / scale)
    rows = np.unique(np.linspace(0, len(embeddings) - 1, min(most, len(embeddings))).astype(np.int64))
    found = embeddings.__getitems__(rows.tolist())["image"].astype(np.float64)
    std = found.std(axis=0)
    mean, std = (_three_digits(each) for each in (found.mean(axis=0), np.where(std > 0, std, 1.0)))
    return mean, std


def _scale(embeddings: EmbeddingShards, most: int) -> float:
    """Return sqrt(D) over the root mean square length of at most so many embeddings, evenly apart, to three digits."""
    rows = np.unique(np.linspace(0, len(embeddings) - 1, min(most, len(embeddings))).astype(np.int64))
    found = embeddings.__getitems__(rows.tolist(), ("image",))["image"].astype(np.float64)
    length = float(np.sqrt((found**2).sum(axis=1).mean()))
    if not length:
        raise DarkroomError("all image embeddings in data/embeddings are zero: embed the images again.")
    return float(f"{embeddings.dim**0.5 / length:.3g}")


def _three_digits(values: NDArray[np.float64]) -> Tensor:
    return torch.tensor([float(f"{value:.3g}") for value in values])


def require_texts(rows: CaptionedEmbeddings) -> None:
    """Check that there are captions to learn from, and tell how many images have none.

    Raises:
        DarkroomError: no image has one.
    """
    if not len(rows):
        raise DarkroomError(
            "no training image has a caption, and the prior learns from captions: give the source captions (`parts` "
            "and the source's section in params.yaml), and run `dvc repro`."
        )
    if missing := len(rows.shards) - len(rows):
        print(f"{missing:,} of {len(rows.shards):,} images have no caption and are left out")
