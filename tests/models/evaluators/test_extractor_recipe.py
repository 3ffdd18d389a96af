"""The extractor's loss: logits adjusted by the frequencies of the classes in training, and by themselves in use."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from darkroom.models.evaluators.extractor import Classifier, ExtractorRecipe, log_prior
from darkroom.training.recipe import Batch

COUNTS = [90, 9, 1, 0]


def recipe(counts: list[int] | None) -> ExtractorRecipe:
    torch.manual_seed(0)
    nothing: list[int] = []
    return ExtractorRecipe(Classifier(3, 4, [4, 8], 6), nothing, nothing, counts)  # type: ignore[arg-type]


def batch(labels: Tensor) -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (len(labels), 3, 8, 8), dtype=torch.uint8, generator=generator)
    return Batch(np.arange(len(labels)), {"images": images, "labels": labels})


def test_the_loss_is_the_cross_entropy_of_logits_and_log_frequencies() -> None:
    """In float64 by hand: -log(π_y e^f_y / Σ_c π_c e^f_c); the class of no image counts as half of one."""
    made, data = recipe(COUNTS), batch(torch.tensor([0, 1, 2, 3, 0]))
    found = made.validate(data)
    logits = made.model(data.data["images"]).double()
    prior = torch.tensor([90, 9, 1, 0.5]).double() / 100.5
    scaled = prior * logits.exp()
    by_hand = -(scaled / scaled.sum(1, keepdim=True)).log()[torch.arange(5), data.data["labels"]]
    torch.testing.assert_close(found["loss"].double(), by_hand, rtol=1e-5, atol=1e-6)
    raw = functional.cross_entropy(logits.float(), data.data["labels"], reduction="none")
    torch.testing.assert_close(recipe(None).validate(data)["loss"], raw)
    assert not torch.allclose(found["loss"], raw)
    made.model.eval()
    torch.testing.assert_close(made.loss(data)["loss"], made.validate(data)["loss"].mean())


def test_the_accuracy_is_that_of_the_logits_in_use() -> None:
    data = batch(torch.zeros(40, dtype=torch.int64))
    for counts in (COUNTS, None):
        made = recipe(counts)
        right = made.model(data.data["images"]).argmax(1) == 0
        assert made.validate(data)["accuracy"].tolist() == right.float().tolist()


def test_equal_frequencies_change_nothing() -> None:
    data = batch(torch.tensor([0, 1, 2, 3]))
    torch.testing.assert_close(recipe([7, 7, 7, 7]).validate(data)["loss"], recipe(None).validate(data)["loss"])
    assert log_prior([1, 3]).exp().tolist() == pytest.approx([0.25, 0.75])
