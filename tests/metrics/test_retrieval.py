"""Recalls and zero-shot accuracy, against counting by hand."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from darkroom.metrics import retrieval
from darkroom.metrics.retrieval import class_embeddings, recalls, zero_shot


def unit(*shape, seed=0):
    return functional.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.mark.parametrize("block", [1024, 7])
def test_recalls_are_those_of_counting(monkeypatch, block):
    monkeypatch.setattr(retrieval, "_BLOCK", block)
    images, texts = unit(40, 6), unit(12, 6, seed=1)
    captions = torch.cat([torch.arange(12), torch.arange(28) % 5])
    cosines = images.double().numpy() @ texts.double().numpy().T
    found = recalls(images, texts, captions)
    for recall in (1, 5):
        hits = [captions[i] in np.argsort(-cosines[i])[:recall] for i in range(40)]
        share = np.mean(hits)
        assert found[f"image_to_text_r{recall}"] == pytest.approx(share)
        assert found[f"image_to_text_r{recall}_se"] == pytest.approx(np.sqrt(share * (1 - share) / 40))
        hits = []
        for u in range(12):
            best = max(cosines[i, u] for i in range(40) if captions[i] == u)
            hits.append(sum(cosines[i, u] >= best for i in range(40) if captions[i] != u) < recall)
        assert found[f"text_to_image_r{recall}"] == pytest.approx(np.mean(hits))


def test_embeddings_that_are_all_the_same_find_nothing():
    same = torch.ones(6, 4) / 2
    assert set(recalls(same, same, torch.arange(6)).values()) == {0.0}


@pytest.mark.parametrize("dim", [96, 512, 768])
def test_nor_do_they_where_products_round(dim):
    image, text = unit(1, dim), unit(1, dim, seed=1)
    found = recalls(image.repeat(331, 1), text.repeat(37, 1), torch.arange(331) % 37)
    assert set(found.values()) == {0.0}


def test_embeddings_of_their_own_find_each_other():
    eye = torch.eye(6)
    found = recalls(eye, eye, torch.arange(6))
    assert all(value == (0.0 if name.endswith("_se") else 1.0) for name, value in found.items())


def test_a_class_is_the_mean_of_its_prompts():
    prompts = unit(5, 4)
    found = class_embeddings(prompts, torch.tensor([0, 1, 0, 1, 1]), 2)
    expected = torch.stack([prompts[[0, 2]].mean(dim=0), prompts[[1, 3, 4]].mean(dim=0)])
    torch.testing.assert_close(found, functional.normalize(expected, dim=1))
    images = torch.cat([found[:1], found[1:], found[1:]])
    assert zero_shot(images, found, torch.tensor([0, 1, 0]))["zero_shot_accuracy"] == pytest.approx(2 / 3)
