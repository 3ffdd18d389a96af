"""The scene reader's recipe: its renders, its loss, what its pictures are put through, and that it learns."""

import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image

from darkroom.data.images import to_array
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import KINDS, scene
from darkroom.models.evaluators.scene_reader import WORDS, Renders, SceneReader, SceneReaderRecipe, accuracy, blurred
from darkroom.models.evaluators.settings import GRID, ReaderAugment
from darkroom.training.loop import train
from darkroom.training.recipe import Batch
from helpers import run, training
from training.toy import curves, places, weights

CLEAN = ReaderAugment(blur=0.0, noise=0.0, colour=0.0)


class Kept(Renders):
    """Renders each picture once: in a training, that takes more than the updates."""

    def __init__(self, *given):
        super().__init__(*given)
        self.made = {}

    def __getitems__(self, rows, positions=None):
        for row in {*map(int, rows)} - self.made.keys():
            self.made[row] = super().__getitems__([row])
        return {name: np.concatenate([self.made[int(row)][name] for row in rows]) for name in ("images", "things")}


def recipe(augment=CLEAN, count=32, kinds=KINDS, hook=None):
    torch.manual_seed(0)
    model = SceneReader(WORDS, [8], 1)
    train_rows = Kept(3, "train", count, 16, kinds)
    if hook:
        read = train_rows.__getitems__

        class Hooked:
            def __len__(self):
                return count

            def keys(self, rows):
                return train_rows.keys(rows)

            def __getitems__(self, rows, positions=None):
                if positions is not None:
                    hook(int(positions[-1]) + 1)
                return read(rows)

        train_rows = Hooked()
    return SceneReaderRecipe(model, augment, 5, train_rows, Renders(3, "val", 8, 16, kinds))


def test_its_scenes_are_those_of_no_data_set_and_of_no_other_split():
    """The same seed and numbers give other scenes in each stream."""
    of_data = [scene(3, number) for number in range(50)]
    train_scenes, val_scenes = (
        [Renders(3, split, 50, 16, KINDS).scene(n) for n in range(50)] for split in ("train", "val")
    )
    assert not {*of_data} & {*train_scenes} and not {*val_scenes} & {*train_scenes, *of_data}


def test_a_row_is_a_picture_and_what_is_in_it():
    rows = Renders(3, "train", 60, 16, KINDS)
    data = rows.__getitems__(range(60))
    for number in range(60):
        found = rows.scene(number)
        picture = render(found, 32).resize((16, 16), Image.Resampling.BICUBIC) if number % 2 else render(found, 16)
        assert np.array_equal(data["images"][number], to_array(picture))
        assert data["things"][number, :, 0].sum() == len(found.objects)
        for row, thing in zip(data["things"][number], found.objects, strict=False):
            names = [values[int(each)] for each, values in zip(row[3:], WORDS.values(), strict=True)]
            assert names == [thing.colour, thing.form, thing.size]
            assert row[1:3] == pytest.approx([thing.x, thing.y])


def test_the_loss_is_its_formula_in_float64():
    made = recipe()
    data = {name: torch.from_numpy(value) for name, value in made.train.__getitems__(range(6)).items()}
    with torch.no_grad():
        made.model.head.weight.mul_(30)
        found = made.validate(Batch(np.arange(6), data))
        said = made.model(data["images"].float() / 127.5 - 1).double().numpy()
    for number in range(6):
        cells, objects = said[number].reshape(GRID, GRID, -1), made.train.scene(number).objects
        wanted, errors, right = np.zeros((GRID, GRID)), 0.0, 0
        for thing in objects:
            column, row = int(thing.x * GRID), int(thing.y * GRID)
            wanted[row, column] = 1
            cell, at, hits = cells[row, column], 3, 0
            errors += (cell[1] - (thing.x * GRID - column)) ** 2 + (cell[2] - (thing.y * GRID - row)) ** 2
            for name, values in WORDS.items():
                logits, true = cell[at : at + len(values)], values.index(getattr(thing, name))
                errors += np.log(np.exp(logits).sum()) - logits[true]
                hits, at = hits + (logits.argmax() == true), at + len(values)
            right += hits == 3
        there = np.log1p(np.exp(-np.abs(cells[..., 0]))) + cells[..., 0].clip(min=0) - wanted * cells[..., 0]
        assert float(found["loss"][number]) == pytest.approx(there.sum() + errors / len(objects), rel=1e-5)
        assert float(found["accuracy"][number]) == pytest.approx(right / len(objects))


def test_each_picture_is_blurred_by_its_own_gaussian():
    from scipy import ndimage

    x = torch.rand(3, 2, 9, 7, generator=torch.Generator().manual_seed(0))
    found = blurred(x, torch.tensor([0.0, 0.4, 1.1]))
    assert torch.equal(found[0], x[0])
    for number, sigma in ((1, 0.4), (2, 1.1)):
        expected = x[number].double().numpy()
        for axis in (1, 2):
            expected = ndimage.gaussian_filter1d(expected, sigma, axis, mode="nearest", radius=2)
        torch.testing.assert_close(found[number].double(), torch.from_numpy(expected), rtol=0, atol=1e-6)


def test_a_picture_is_put_through_the_same_in_any_company():
    made = recipe(ReaderAugment(blur=1.0, noise=0.2, colour=0.2))
    x = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    whole, alone = made.augmented(x, [7, 8, 9, 10, 11]), made.augmented(x[3:4], [10])
    assert torch.equal(whole[3:4], alone) and not torch.equal(whole[3:4], made.augmented(x[3:4], [11]))
    assert whole.abs().max() <= 1


def test_without_augmentation_nothing_changes():
    x = torch.rand(2, 3, 16, 16) * 2 - 1
    torch.testing.assert_close(recipe().augmented(x, [0, 1]), x, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("augment", "least", "most"),
    [
        (ReaderAugment(blur=0.0, noise=0.2, colour=0.0), 0.0, 0.2),
        (ReaderAugment(blur=0.0, noise=0.0, colour=0.2), 0.0, 0.2 * 1.5),
    ],
)
def test_each_augmentation_is_as_strong_as_asked_for_at_most(augment, least, most):
    """On grey of 0.5: noise has a deviation of at most `noise`; colour moves by at most colour (1 + |v|)."""
    made, x = recipe(augment), torch.full((40, 3, 16, 16), 0.5)
    found = made.augmented(x, list(range(40))) - x
    sizes = found.std((1, 2, 3)) if augment.noise else found.abs().amax((1, 2, 3))
    assert least < sizes.min() and 0.6 * most < sizes.max() < 1.1 * most


def test_it_learns_and_its_accuracy_is_that_of_captions(tmp_path):
    """One thing at a place, in 16 pixels: large from small, and where it is, are learned in seconds."""
    made = recipe(count=3200, kinds=["position"])
    before = accuracy(made.model.eval(), Renders(3, "test", 100, 16, ["position"]), 50, torch.device("cpu"))
    settings = training(images=6400, batch=32, learning_rate=0.01, log_every=3200, validate_every=3200)
    trainer = train(made, settings, run(), places(tmp_path))
    with trainer.averaged():
        after = accuracy(made.model.eval(), Renders(3, "test", 100, 16, ["position"]), 50, torch.device("cpu"))
    assert before["position"] < 0.3 and after["position"] > 0.8 and after["colour"] > 0.8
    assert after["as_described"] <= min(after.values())


def test_a_stopped_training_continues_bit_for_bit(tmp_path):
    augment = ReaderAugment(blur=0.5, noise=0.1, colour=0.1)
    whole = train(recipe(augment), training(), run(), places(tmp_path / "whole"))
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == 32 else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(recipe(augment, hook=hook), training(), run(), places(tmp_path))
    resumed = train(recipe(augment), training(), run(), places(tmp_path))
    assert weights(resumed) == weights(whole) and curves(tmp_path / "curves") == curves(tmp_path / "whole" / "curves")
