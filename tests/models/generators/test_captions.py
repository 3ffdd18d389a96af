"""Captions that the transformer embeds itself: their tokens, their vocabulary, and the network that reads them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.models.clip.network import tokens_of
from darkroom.models.clip.settings import OPENAI
from darkroom.models.generators.captions import Captions, cut, read
from darkroom.models.generators.conditions import START, UNKNOWN, Captioned
from darkroom.models.generators.embeddings import CaptionEmbedding

END = START + 1
LENGTH = 6


def split(*texts: str | None) -> SimpleNamespace:
    """Return what is read of a split's images."""

    class Images(SimpleNamespace):
        def __len__(self) -> int:
            return len(texts)

    return Images(caption_column=pa.chunked_array([pa.array(texts, pa.string())]))


def test_rows_have_the_tokens_of_their_captions():
    texts = ["a red circle", None, "a ring", "a red circle"]
    found = Captions.of(split(*texts))
    rows = found.tokens[found.numbers]
    np.testing.assert_array_equal(rows[[0, 2, 3]], tokens_of(["a red circle", "a ring", "a red circle"], 5, False))
    assert not rows[1].any() and len(found.tokens) == 3
    assert found.vocabulary.tolist() == np.unique(rows[rows > 0]).tolist() and START in found.vocabulary


def test_the_length_is_that_of_nearly_all_and_longer_captions_end_earlier():
    texts = 199 * ["a ring"] + ["a ring of nine red circles"]
    found = Captions.of(split(*texts))
    assert found.tokens.shape[1] == 4
    assert found.tokens[found.numbers[199]].tolist() == [*tokens_of(["a ring"], 4, False)[0, :3], END]
    assert (found.longer, Captions.of(split(*texts), 3).longer, Captions.of(split(*texts), 8).longer) == (1, 2, 0)
    assert Captions.of(split(*texts), 8).tokens.shape[1] == 8
    endless = Captions.of(split(*100 * ["a ring " * 99]))
    assert (endless.tokens.shape[1], endless.longer) == (OPENAI, 1)
    whole = tokens_of(["a ring", "a ring of"], 9, False)
    np.testing.assert_array_equal(cut(whole, 5), whole[:, :5])  # the end of the second is the fifth


def test_no_caption_is_refused_before_a_training_and_told_from_an_empty_one():
    with pytest.raises(DarkroomError, match=r"none of the 2 images has a caption, .*condition` is caption"):
        Captions.of(split(None, None))
    assert not Captions.of(split(None, None), 5).tokens.any()  # of a validation split without any
    assert Captioned.of(read(["a ring", None, ""], 5)["caption"]).keep.tolist() == [True, False, True]


def captioned(*words: list[int]) -> Captioned:
    rows = [[START, *some, END, *(LENGTH - 2 - len(some)) * [0]] for some in words]
    return Captioned.of(rows)


def network() -> CaptionEmbedding:
    """Return an untrained network that knows the tokens 3, 8 and 20."""
    torch.manual_seed(0)
    found = CaptionEmbedding(LENGTH, 5, 16, 2)
    found.vocabulary.copy_(torch.tensor([3, 8, 20, START, END]))
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return found


def test_tokens_that_are_in_no_training_caption_are_the_unknown_one():
    model = network()
    known, seven, high, hidden = (model(one.tokens, one.keep)[2] for one in (
        captioned([3, 8]), captioned([3, 7]), captioned([3, 30000]),
        captioned([3, 8]).without(torch.tensor([[False, False, True, False, False, False]])),
    ))  # fmt: skip
    assert torch.equal(seven, high) and torch.equal(seven, hidden) and not torch.equal(seven, known)
    one = captioned([3, 8]).without(torch.ones(1, LENGTH, dtype=torch.bool))
    assert one.tokens.tolist() == [[START, UNKNOWN, UNKNOWN, END, 0, 0]]  # start, end and padding stay


def test_places_behind_the_end_change_nothing_and_the_order_of_words_does():
    model, one = network(), captioned([3, 8])
    x, inside, mean = model(one.tokens, one.keep)
    assert inside.tolist() == [[True] * 4 + [False] * 2]
    with torch.no_grad():
        model.words.weight[0] += torch.randn(16)  # what padding reads
        model.positions[4:] += torch.randn(2, 16)
    again, _, same = model(one.tokens, one.keep)
    torch.testing.assert_close(x[:, :4], again[:, :4])
    torch.testing.assert_close(mean, same)
    other = captioned([8, 3])
    assert (model(other.tokens, other.keep)[2] - same).abs().max() > 1e-3


def test_dropped_captions_are_the_null_whatever_they_say():
    model, some = network(), captioned([3, 8], [20], [3])
    some = replace(some, keep=torch.tensor([False, False, True]))
    x, inside, mean = model(some.tokens, some.keep)
    assert torch.equal(x[0], model.null) and torch.equal(x[0], x[1]) and torch.equal(mean[0], mean[1])
    assert inside[:2].all() and inside[2].tolist() == [True] * 3 + [False] * 3
    torch.testing.assert_close(mean[0], model.pooled(model.null.mean(dim=0)))
