"""The teacher's recipe: what it is asked, what its images are put through, and that it learns."""

import os
import signal

import numpy as np
import pytest
import torch

from darkroom.models.evaluators.settings import TeacherAugment
from darkroom.models.evaluators.teacher import Teacher, TeacherRecipe, shifted
from darkroom.training.loop import train
from darkroom.training.recipe import Batch
from helpers import run, training
from training.toy import curves, places, weights


class Bars:
    """32 images, black but for one bright edge: that edge is the label."""

    def __init__(self, hook=None):
        self.hook = hook

    def __len__(self):
        return 32

    def __getitems__(self, rows, positions=None):
        if self.hook and positions is not None:
            self.hook(int(positions[-1]) + 1)
        images = np.zeros((len(rows), 1, 8, 8), dtype=np.uint8)
        images[:, :, :2] = 255
        labels = np.array(rows) % 4
        turned_images = [np.rot90(image, label, (1, 2)) for image, label in zip(images, labels, strict=True)]
        return {"images": np.stack(turned_images), "labels": labels}

    def keys(self, rows):
        return [str(row) for row in rows]


def recipe(hook=None, shift=1):
    torch.manual_seed(0)
    model = Teacher(in_channels=1, classes=4, channels=[8, 8], layers=1)
    return TeacherRecipe(model, TeacherAugment(shift=shift, contrast=0.2), 5, Bars(hook), Bars())


def test_it_learns_what_it_is_asked(tmp_path):
    trainer = train(recipe(), training(images=640, learning_rate=0.02), run(), places(tmp_path))
    assert trainer.records[0]["train/accuracy"] < 0.8 and trainer.records[-1]["val/accuracy"] == 1


def test_a_stopped_training_continues_bit_for_bit(tmp_path):
    whole = train(recipe(), training(), run(), places(tmp_path / "whole"))
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == 32 else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(recipe(hook=hook), training(), run(), places(tmp_path))
    resumed = train(recipe(), training(), run(), places(tmp_path))
    assert weights(resumed) == weights(whole) and curves(tmp_path / "curves") == curves(tmp_path / "whole" / "curves")


def test_an_image_is_put_through_the_same_in_any_company():
    made, seen = recipe(shift=3), []
    made.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images = torch.randint(0, 256, (6, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for places_ in ([0, 1, 2, 3, 4, 5], [4]):
        made.loss(Batch(np.array(places_), {"images": images[places_], "labels": torch.zeros(len(places_)).long()}))
    assert torch.equal(seen[0][4], seen[1][0])


def test_validation_sees_the_images_as_they_are():
    made, seen = recipe(), []
    made.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    made.validate(Batch(np.arange(3), {"images": images, "labels": torch.zeros(3).long()}))
    assert torch.equal(seen[0], images.float() / 127.5 - 1)


def test_an_image_is_shifted_and_its_edge_repeated():
    image = torch.arange(9.0).view(1, 1, 3, 3)
    both = shifted(image.expand(2, 1, 3, 3), torch.tensor([1, 0]), torch.tensor([0, -2]))
    assert both[0, 0].tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]
    assert both[1, 0].tolist() == [[2, 2, 2], [5, 5, 5], [8, 8, 8]]
