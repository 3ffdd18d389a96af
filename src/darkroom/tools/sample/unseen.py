"""Finds words that a CLIP trained here has never seen: their embeddings are as random as its initial weights."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, read_manifest
from darkroom.artifacts.models import CLIP, CLIP_FOLDER
from darkroom.data.catalog import load_catalog
from darkroom.data.reader import ImageShards
from darkroom.models.clip.network import Clip
from darkroom.models.clip.text import tokens_of

_MOST = 50_000  # distinct captions: with more, reading them takes longer than sampling the images


def unseen_words(texts: Sequence[str], clip: Clip) -> list[str]:
    """Return the words of texts with a token that is in no training caption, each word once, in their order.

    The list is empty for a published CLIP, without the training data, or with too many captions.
    """
    if read_manifest(CLIP_FOLDER, CLIP)["source"] != "trained":
        return []
    try:
        column = ImageShards.open_parts(list(load_catalog(shards=None).parts), "train").caption_column
    except ArtifactError:
        return []
    captions = column.unique().drop_null().to_pylist()
    if len(captions) > _MOST:
        return []
    known = np.unique(tokens_of(captions, clip.context_length, truncate=True))
    words = dict.fromkeys(word for text in texts for word in text.split())
    return [word for word in words if not np.isin(_tokens(word, clip), known).all()]


def _tokens(word: str, clip: Clip) -> NDArray[np.uint16]:
    """Return the tokens of a word, without the start and end tokens."""
    return tokens_of([word], clip.context_length, truncate=True)[0]
