"""What a prior is trained on: images that have a caption, by what CLIP says of both."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.data.embeddings import EmbeddingShards
from darkroom.errors import DarkroomError
from darkroom.training.data import Positions


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
