"""What a generator reads of texts, and the words that it, or its CLIP, has seen too seldom to know them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError, read_manifest
from darkroom.artifacts.models import CLIP, CLIP_FOLDER
from darkroom.artifacts.networks import WEIGHTS
from darkroom.data.catalog import load_catalog
from darkroom.data.reader import ImageShards
from darkroom.models.clip.load import load_clip
from darkroom.models.clip.network import Clip, tokens_of
from darkroom.models.clip.settings import OPENAI
from darkroom.models.generators.captions import embedded, read

_MOST = 50_000  # distinct captions: with more, reading them takes longer than sampling the images
_SHOWN = 60  # first characters of a text, in a note
_FEW = 5  # training captions below which a word is named


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
                print(f"note: {text[:_SHOWN]!r} is cut to the {length} tokens that {model} reads")
        _note(given, model, _counted(length, manifest["catalog"]) or dict.fromkeys(known.tolist(), _FEW))
        return read(texts, length)
    clip = load_clip()
    note_words(given, clip)
    found = embedded(clip, [text or "" for text in texts], manifest)
    there = torch.tensor([text is not None for text in texts])
    return {name: value * there.reshape(-1, *(1,) * (value.ndim - 1)) for name, value in found.items()}


def note_words(texts: Sequence[str], clip: Clip) -> None:
    """Print a note on each word of texts that few training captions of CLIP hold, or none.

    Nothing is printed for a published CLIP, without the training data, or with too many captions.
    """
    if read_manifest(CLIP_FOLDER, CLIP)["source"] == "trained" and (counts := _counted(clip.context_length)):
        _note(texts, CLIP_FOLDER, counts)


def _counted(context: int, of: str | None = None) -> dict[int, int]:
    """Return in how many training captions each token is; nothing where they are not there, or too many."""
    try:
        catalog = load_catalog(shards=None)
        if of not in (None, catalog.fingerprint):
            return {}
        column = ImageShards.open_parts(list(catalog.parts), "train").caption_column
    except ArtifactError:
        return {}
    different = column.drop_null().value_counts()
    if len(different) > _MOST:
        return {}
    tokens = tokens_of(different.field("values").to_pylist(), context, truncate=True)
    found: Counter[int] = Counter()
    for row, images in zip(tokens, different.field("counts").to_pylist(), strict=True):
        found.update(dict.fromkeys(np.unique(row).tolist(), images))
    return found


def _note(texts: Sequence[str], whose: Path, counts: Mapping[int, int]) -> None:
    """Print a note on each word of texts whose rarest token is in few captions, each once, in their order."""
    for word in dict.fromkeys(word for text in texts for word in text.split()):
        tokens = tokens_of([word], OPENAI, truncate=True)[0]
        shown = word[:_SHOWN]
        count = min(counts.get(token, 0) for token in tokens[tokens > 0].tolist())
        if not count:
            print(f"note: no caption that {whose} was trained on holds {shown!r}: it may make of it what it likes")
        elif count < _FEW:
            print(f"note: {shown!r} is in at most {count} captions that {whose} was trained on: too few to know it")
