"""Encode texts for a generator, and report words that are not in its training captions."""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.reader import ImageShards
from darkroom.models.clip.load import load_clip
from darkroom.models.clip.network import tokens_of
from darkroom.models.clip.settings import OPENAI
from darkroom.models.generators.captions import embedded, read

_WORD = re.compile(r"[^\W_]+")
_SHOWN = 60  # first characters of a text, in a note
_LISTED = 60  # known words at most that a note lists


def stored_texts(texts: Sequence[str | None], manifest: Mapping[str, Any], model: Path) -> dict[str, Tensor]:
    """Return texts as conditions of the generator in the folder `model`; None is an image without a caption.

    Print notes on words that no training caption contains; if it was trained on captions, also on truncated texts.
    """
    for note in unknown_words(" ".join(filter(None, texts)), _words_of(manifest)):
        print(f"note: {note}")
    if manifest["condition"] == "caption":
        length = manifest["context_length"]
        for text in filter(None, texts):
            if tokens_of([text], OPENAI, truncate=True).argmax() >= length:
                print(f"note: {text[:_SHOWN]!r} is truncated to the {length} tokens that {model} reads")
        return read(texts, length)
    conditions = embedded(load_clip(), [text or "" for text in texts], manifest)
    present = torch.tensor([text is not None for text in texts])
    return {name: value * present.reshape(-1, *(1,) * (value.ndim - 1)) for name, value in conditions.items()}


def unknown_words(text: str, words: set[str]) -> list[str]:
    """Return a note on each word of a text that is not in `words`, then one that lists `words` if they are few."""
    notes = list[str]()
    for word in [word for word in dict.fromkeys(_WORD.findall(text.lower())) if words and word not in words]:
        near = ", ".join(f'"{each}"' for each in difflib.get_close_matches(word, sorted(words)))
        notes.append(f'"{word[:_SHOWN]}" is not in the training captions{f"; nearest: {near}" if near else ""}')
    listed = notes and len(words) <= _LISTED
    return [*notes, f"the training captions have only these words: {', '.join(sorted(words))}"] if listed else notes


def _words_of(manifest: Mapping[str, Any]) -> set[str]:
    """Return the words of the training captions in lower case; the empty set if the images are not in this clone."""
    try:
        captions = ImageShards.open_parts(manifest["parts"], "train").caption_column.unique().to_pylist()
    except (ArtifactError, KeyError):  # an older generator does not name its parts
        return set()
    return {word for caption in captions for word in _WORD.findall((caption or "").lower())}
