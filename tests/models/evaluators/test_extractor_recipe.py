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


def test_rare_classes_are_then_found_as_often_as_others() -> None:
    """Of two overlapping classes, 95 % and 5 %, on one axis: unadjusted the rare one is hardly ever the answer."""
    draws = np.random.default_rng(0)
    labels = torch.from_numpy((draws.random(4000) < 0.05).astype(np.int64))
    levels = torch.from_numpy(draws.normal(110 + 35 * labels.numpy(), 25).clip(0, 255).round()).to(torch.uint8)
    images = levels[:, None, None, None].expand(-1, 3, 4, 4)
    recalls = {}
    for name, counts in (("adjusted", torch.bincount(labels).tolist()), ("plain", None)):
        torch.manual_seed(0)
        made = ExtractorRecipe(Classifier(3, 2, [8], 4), [], [], counts)  # type: ignore[arg-type]
        optimizer = torch.optim.AdamW(made.model.parameters(), 1e-2)
        for _ in range(3):
            for rows in torch.randperm(4000).split(100):
                loss = made.loss(Batch(rows.numpy(), {"images": images[rows], "labels": labels[rows]}))["loss"]
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.inference_mode():
            right = made.model(images).argmax(1) == labels
        recalls[name] = [float(right[labels == number].double().mean()) for number in (0, 1)]
    assert abs(recalls["adjusted"][0] - recalls["adjusted"][1]) < 0.2 and min(recalls["adjusted"]) > 0.6
    assert recalls["plain"][1] < 0.4
