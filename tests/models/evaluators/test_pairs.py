"""Images against their originals and captions: CLIP's cosines in float64, and texts in fixed batches."""

import numpy as np
import pytest
import torch

from darkroom.models.evaluators.pairs import clip_scores, cosines, text_embeddings

RNG = np.random.default_rng(0)
CPU = torch.device("cpu")


def rows(count=6, dim=5):
    return torch.from_numpy(RNG.normal(size=(count, dim)).astype(np.float32))


def cosine(a, b):
    a, b = a.double().numpy(), b.double().numpy()
    return (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))


def test_cosines_are_those_of_float64_whatever_the_lengths():
    a, b = rows(), rows()
    found = cosines(100 * a, b)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), cosine(a, b), rtol=1e-6)


def test_similarities_have_their_errors_and_what_to_read_them_against():
    real, made, texts = rows(), rows(), rows()
    scores, unrelated = clip_scores(real, made, texts)
    for name, pair in {"clip_image": (made, real), "clip_text": (made, texts), "clip_text_real": (real, texts)}.items():
        each = cosine(*pair)
        assert scores[name] == pytest.approx(each.mean(), rel=1e-6)
        assert scores[f"{name}_se"] == pytest.approx(each.std(ddof=1) / np.sqrt(6), rel=1e-6)
    for name, others in {"image_other": real, "text_other": texts}.items():
        every = [cosine(made[[one]], others[[other]])[0] for one in range(6) for other in range(6) if one != other]
        assert unrelated[name] == pytest.approx(np.mean(every), rel=1e-6)


def test_images_without_captions_have_no_similarity_with_them():
    scores, unrelated = clip_scores(rows(), rows(), None)
    assert set(scores) == {"clip_image", "clip_image_se"} and set(unrelated) == {"image_other"}


def test_the_same_images_have_a_similarity_of_one():
    real = rows()
    assert clip_scores(real, 3 * real, None)[0] == pytest.approx({"clip_image": 1, "clip_image_se": 0}, abs=1e-7)


def test_equal_texts_are_embedded_once_and_always_so_many():
    asked = []

    def embed(texts):
        asked.append(texts)
        return torch.tensor([[float(len(text)), 1.0] for text in texts])

    found = text_embeddings(embed, ["aaa", "b", "aaa", "cc", ""], 3)
    assert found.tolist() == [[3, 1], [1, 1], [3, 1], [2, 1], [0, 1]]
    assert asked == [["aaa", "b", "cc"], ["", "", ""]]
