"""Encode texts for a generator, and report words that are not in its training captions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from darkroom.artifacts.networks import WEIGHTS
from darkroom.models.clip.load import load_clip
from darkroom.models.clip.network import tokens_of
from darkroom.models.clip.settings import OPENAI
from darkroom.models.generators.captions import embedded, read

_SHOWN = 60  # first characters of a text, in a note


def stored_texts(texts: Sequence[str | None], manifest: Mapping[str, Any], model: Path) -> dict[str, Tensor]:
    """Return texts as conditions of the generator in the folder `model`; None is an image without a caption.

    If it was trained on captions, print notes on words that no caption contains, and on truncated texts.
    """
    if manifest["condition"] == "caption":
        with safe_open(model / WEIGHTS, "pt") as file:
            known = set(file.get_tensor("caption.vocabulary").tolist())
        length = manifest["context_length"]
        for text in filter(None, texts):
            if tokens_of([text], OPENAI, truncate=True).argmax() >= length:
                print(f"note: {text[:_SHOWN]!r} is truncated to the {length} tokens that {model} reads")
        for word in dict.fromkeys(word for text in filter(None, texts) for word in text.split()):
            if {*tokens_of([word], OPENAI, truncate=True)[0].tolist()} - known - {0}:
                print(f"note: no training caption of {model} contains {word[:_SHOWN]!r}")
        return read(texts, length)
    conditions = embedded(load_clip(), [text or "" for text in texts], manifest)
    present = torch.tensor([text is not None for text in texts])
    return {name: value * present.reshape(-1, *(1,) * (value.ndim - 1)) for name, value in conditions.items()}
