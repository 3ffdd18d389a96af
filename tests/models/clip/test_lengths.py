"""Captions that are longer than CLIP's context are counted before anything is trained, without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from darkroom.models.clip.lengths import OPENAI, context_of, long_captions, said_of
from darkroom.models.clip.network import tokenize

TEXTS = ["a red cat", "größere Katzen sitzen", "a " * 20, "猫" * 30, "x &amp; y", "  many   blanks  ", ""]


@pytest.mark.parametrize("text", TEXTS)
def test_lengths_are_those_of_clips_own_tokenizer(text: str) -> None:
    tokens = int((tokenize(text, 200) != 0).sum())
    assert long_captions([text], tokens) is None
    found = long_captions([text], tokens - 1)
    assert found is not None and (found.captions, found.longest, found.tokens) == (1, text, tokens)


def test_the_longest_of_several_is_named() -> None:
    found = long_captions(["short", "a b c d e f g h", "a b c d e f g h i j"], 8)
    assert found is not None and (found.captions, found.tokens) == (2, 12)
    said = said_of(found, 8, "CLIP's context")
    assert said.startswith("2 different captions have more than the 8 tokens of CLIP's context; the longest, ")
    assert said.endswith("'a b c d e f g h i j', has 12")


def test_the_context_follows_from_the_source() -> None:
    assert context_of("trained", {"model": {"context_length": 24}}) == 24
    assert context_of("trained", {}) == 16
    assert context_of("none", None) is None
    assert context_of("pretrained", {}) == OPENAI
    assert context_of("pretrained", {"name": None, "open_clip": "ViT-B-32/laion2b"}) is None


def test_torch_is_not_imported() -> None:
    program = (
        "import sys; from darkroom.models.clip.lengths import long_captions; "
        "assert long_captions(['a b c'], 4); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3] / "src")
