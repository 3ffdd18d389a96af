"""The panel separates deliberate copiers from an honest model and from held-out images, on digits and on scenes."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics.memorisation import Panel, memorisation
from darkroom.metrics.sample_scores import SPACES
from darkroom.metrics.score import wilson

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TRAINED, COUNT = 250, 100  # number of training images; of generated and of held-out images


def more_than(panel: Panel, space: str) -> bool:
    """Return whether more images are copies than held-out ones are, their intervals apart."""
    own, floor = (scores[f"copies_{space}"] for scores in (panel.scores, panel.floor))
    return wilson(own, COUNT)[0] > wilson(floor, COUNT)[1]


@pytest.mark.parametrize("data", ["digits", pytest.param("shapes", marks=pytest.mark.slow)])
def test_copiers_are_told_from_an_honest_model(data, monkeypatch, one_thread):
    monkeypatch.syspath_prepend(BENCHMARKS)
    copiers = importlib.import_module("copiers")
    images, labels = getattr(copiers, data)(TRAINED + 2 * COUNT)
    panels = dict(copiers.panels(images, labels, TRAINED, COUNT, 3))
    honest = panels.pop("an honest model")
    assert not any(more_than(honest, space) for space in SPACES)
    assert all(abs(honest.scores[f"ct_{space}"]) < 3.5 and abs(honest.floor[f"ct_{space}"]) < 3.5 for space in SPACES)
    few = panels.pop("one in ten copied, with noise")
    assert more_than(few, "pixels") and 0.05 < few.scores["copies_pixels"] < 0.15
    for name, panel in panels.items():
        found = {space for space in SPACES if more_than(panel, space)}
        assert ("pixels" in found) == (", moved" not in name) and "moved" in found, name
        assert panel.scores["ct_moved"] < -10, name
        rows = panel.samples.neighbours["moved"].row
        assert (rows == torch.arange(COUNT)).double().mean() > 0.95, name  # each beside its own original


class Rows:
    """Images in memory, which say what was asked of them."""

    def __init__(self, images: np.ndarray) -> None:
        self.images, self.read = images, 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows):
        self.read = max(self.read, len(rows))
        return self.images[list(rows)]


def means(images: torch.Tensor) -> torch.Tensor:
    return images.float().mean(dim=3).flatten(1) / 255


def panel(made: np.ndarray, held_out: np.ndarray, train: Rows, **changes) -> Panel:
    sets = [(Rows(images), list(range(len(images)))) for images in (made, held_out)]
    how = {"batch": 8, "blocks": 2, "with_gaps": True, "device": torch.device("cpu")}
    return memorisation(*sets, train, drawn(len(train)), means, **how | changes)


def random(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 8, 8), dtype=np.uint8)


def test_training_images_are_read_in_batches_and_of_any_number():
    train = Rows(random(0, 100))
    found = panel(train.images[40:60], random(1, 30), train)
    assert train.read == 8
    assert found.samples.neighbours["pixels"].row.tolist() == list(range(40, 60))
    assert found.scores["copies_pixels"] == 1 and found.floor["copies_pixels"] == 0 and found.nearer["pixels"] == 1
    assert {"fd_gap", "kid_gap"} <= set(found.scores) and {"fd_gap", "kid_gap"} <= set(found.floor)
    assert found.samples.closest("pixels", 3) == [0, 1, 2]


def test_c_t_of_held_out_images_is_that_of_one_half_against_the_other():
    train = Rows(random(0, 60))
    found = panel(random(2, 10), np.concatenate([train.images[:15], random(1, 15)]), train)
    assert found.floor["ct_pixels"] < -4 and abs(panel(random(2, 10), random(1, 30), train).floor["ct_pixels"]) < 4


def test_gaps_are_left_out_where_they_are_not_asked_for_or_images_are_few():
    train = Rows(random(0, 100))
    assert "fd_gap" not in panel(train.images[:20], random(1, 30), train, with_gaps=False).scores
    few = panel(train.images[:20], random(1, 7), train)
    assert "fd_gap" in few.scores and "fd_gap" not in few.floor
    assert "fd_gap" not in panel(train.images[:3], random(1, 30), train).scores
    with pytest.raises(DarkroomError, match="with 20 generated and 1 held-out images"):
        panel(train.images[:20], random(1, 1), train)
