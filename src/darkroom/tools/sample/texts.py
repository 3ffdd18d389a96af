"""What a generator reads of texts, and the words that it, or its CLIP, has never seen."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError, read_manifest
from darkroom.artifacts.models import CLIP, CLIP_FOLDER
from darkroom.artifacts.networks import WEIGHTS
from darkroom.data.catalog import load_catalog
from darkroom.data.reader import ImageShards
from darkroom.models.clip.lengths import OPENAI
from darkroom.models.clip.load import load_clip
from darkroom.models.clip.network import Clip
from darkroom.models.clip.text import tokens_of
from darkroom.models.generators.captions import read
from darkroom.models.generators.texts import embedded

_MOST = 50_000  # distinct captions: with more, reading them takes longer than sampling the images


def stored_texts(texts: Sequence[str | None], manifest: Mapping[str, Any], model: Path) -> dict[str, Tensor]:
    """Return what a generator reads of texts, of None as of an image without a caption; note words it cannot know.

    Args:
        texts: the texts.
        manifest: of the generator.
        model: its folder.
    """
    given = [text for text in texts if text is not None]
    if manifest["condition"] == "caption":
        with safe_open(model / WEIGHTS, "pt") as file:
            known = file.get_tensor("caption.vocabulary").numpy()
        length = manifest["context_length"]
        for text in given:
            if tokens_of([text], OPENAI, truncate=True).argmax() >= length:
                print(f"note: {text!r} is cut to the {length} tokens that {model} reads")
        unseen, whose, found = _not_in(given, known, OPENAI), model, read(texts, length)
    else:
        clip = load_clip()
        found = embedded(clip, [text or "" for text in texts], manifest)
        there = torch.tensor([text is not None for text in texts])
        found = {name: value * there.reshape(-1, *(1,) * (value.ndim - 1)) for name, value in found.items()}
        unseen, whose = unseen_words(given, clip), CLIP_FOLDER
    for word in unseen:
        print(f"note: no caption that {whose} was trained on holds {word!r}: it may make of it what it likes")
    return found


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
    return _not_in(texts, np.unique(tokens_of(captions, clip.context_length, truncate=True)), clip.context_length)


def _not_in(texts: Sequence[str], known: NDArray[Any], context: int) -> list[str]:
    """Return the words of texts with a token that is not known, each once, in their order."""
    words = dict.fromkeys(word for text in texts for word in text.split())
    known = np.append(known, 0)  # padding
    return [word for word in words if not np.isin(tokens_of([word], context, truncate=True), known).all()]
