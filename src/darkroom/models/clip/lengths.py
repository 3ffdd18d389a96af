"""Counts the captions that are longer than what a network reads, before anything is trained. It imports no torch."""

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from darkroom.models.clip.settings import Pretrained, Trained

OPENAI = 77  # tokens that OpenAI's networks read
_ENDS = 2  # the tokens before and behind a text
_SHOWN = 60  # characters of a caption in a message


class _Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class Long:
    """Captions of more tokens than the context: the number of distinct ones, the longest, and its tokens."""

    captions: int
    longest: str
    tokens: int


def context_of(source: str, chosen: Mapping[str, Any] | None) -> int | None:
    """Return the tokens that CLIP reads of a caption; None: no CLIP is used, or only its file says it.

    Args:
        source: `train_clip.source`.
        chosen: the section of its name.
    """
    if source == "trained":
        return Trained.model_validate(chosen or {}).model.context_length
    if source == "pretrained":
        return None if Pretrained.model_validate(chosen or {}).of_open_clip else OPENAI
    return None


def long_captions(captions: Iterable[str], context: int) -> Long | None:
    """Return what is known of the captions that are too long; None: none is.

    Args:
        captions: the distinct captions.
        context: the tokens of a text, with the start and end tokens.
    """
    # No text has more tokens than bytes, so that most need not be tokenised.
    candidates = [text for text in captions if len(text.encode()) + _ENDS > context]
    if not candidates:
        return None
    tokenizer = _tokenizer()
    lengths = {text: len(tokenizer.encode(text)) + _ENDS for text in candidates}
    longest = max(lengths, key=lambda text: (lengths[text], text))
    count = sum(length > context for length in lengths.values())
    return Long(count, longest, lengths[longest]) if count else None


def said_of(found: Long, context: int, whose: str) -> str:
    """Return a sentence on captions that are too long: how many, and the longest.

    whose: what has so many tokens.
    """
    shown = found.longest if len(found.longest) <= _SHOWN else f"{found.longest[:_SHOWN]}…"
    return (
        f"{found.captions:,} different captions have more than the {context} tokens of {whose}; the longest, "
        f"{shown!r}, has {found.tokens:,}"
    )


def _tokenizer() -> _Tokenizer:
    """Return the byte pairs of clip-anytorch, from their file: the package itself imports torch."""
    package = importlib.util.find_spec("clip")
    assert package is not None and package.submodule_search_locations is not None
    file = Path(package.submodule_search_locations[0], "simple_tokenizer.py")
    spec = importlib.util.spec_from_file_location("clip_simple_tokenizer", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tokenizer: _Tokenizer = module.SimpleTokenizer()
    return tokenizer
