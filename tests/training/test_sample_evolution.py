"""The sample evolution of a training: the same images at each doubling, whatever kills it or `run` says; on disk."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from darkroom.training import after_step
from darkroom.training.after_step import points_of_sample_evolution, reduced, sample_evolution_is_due
from darkroom.training.loop import train
from helpers import run, training
from training.toy import Toy, curves, places

ENDS = (64, 999, 1000, 1001, 1999, 2000, 2500, 76800)


class Shades(Toy):
    """Draws two images, the shade of the first one by the weights."""

    by_class = True

    def sample_evolution(self):
        shade = int(self.modules["second"].bias.detach().abs() * 1e6) % 256
        return np.stack([np.full((3, 4, 4), shade, np.uint8), np.full((3, 4, 4), 7, np.uint8)])


class Copies(Shades):
    def originals(self):
        return np.full((2, 3, 4, 4), 200, np.uint8)


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 64 images of a test, points at 8, 16, 32 and 64."""
    monkeypatch.setattr(after_step, "FIRST", 8)


def shades(folder):
    """Return the grey levels of the sample evolution, by row and column."""
    with Image.open(folder / "curves/sample_evolution.png") as picture:
        pixels = np.asarray(picture)
    return pixels[2 + 48 :: 98, 2 + 48 :: 98, 0].tolist()


@pytest.mark.parametrize("batch", [1, 24])
def test_it_is_drawn_at_doublings_and_at_the_end(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(after_step, "FIRST", 1000)
    at = {-(-1000 * 2**k // batch) * batch for k in range(20)}
    for end in ENDS:
        last = end - end % batch
        drawn = [seen for seen in range(batch, last + 1, batch) if sample_evolution_is_due(seen - batch, seen, last)]
        assert drawn == sorted({*(seen for seen in at if seen <= last), last}), end
        if batch == 1:
            assert len(drawn) == points_of_sample_evolution(end)


def test_a_row_for_each_point_below_the_originals(tmp_path) -> None:
    recipe = Copies()
    recipe.captions = ["dark", "seven"]
    train(recipe, training(), run(), places(tmp_path))
    facts = json.loads((tmp_path / "curves/sample_evolution.json").read_text())
    kept = {"originals": True, "by_class": True, "captions": ["dark", "seven"]}
    assert facts == {"images": [8, 16, 32, 64], **kept}
    for name in ("sample_evolution.png", "sample_evolution.json"):
        assert (tmp_path / "logs" / name).read_bytes() == (tmp_path / "curves" / name).read_bytes(), (
            "for `darkroom show`"
        )
    first, *rows = shades(tmp_path)
    assert first == [200, 200] and [row[1] for row in rows] == [7] * 4 and len({row[0] for row in rows}) == 4


def test_it_shows_the_averaged_weights_and_checkpoints_name_it_as_those_of_earlier_versions(tmp_path) -> None:
    trainer = train(Shades(), training(), run(), places(tmp_path))
    assert list(trainer.state_dict()[0]["strip"]) == [f"{images:012d}" for images in (8, 16, 32, 64)]
    assert shades(tmp_path)[-1][0] == int(trainer.ema.state["second"]["bias"].abs() * 1e6) % 256


def test_a_killed_training_continues_it_and_run_changes_nothing(tmp_path) -> None:
    train(Shades(), training(), run(grid_every=0), places(tmp_path / "whole"))

    def stop(seen: int) -> None:
        if seen > 40:
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(Shades(stop), training(), run(max_lost_seconds=1e-9, grid_every=8), places(tmp_path))
    train(Shades(), training(), run(grid_every=8), places(tmp_path))
    assert curves(tmp_path / "curves") == curves(tmp_path / "whole/curves")


def test_of_a_long_training_the_last_points_are_kept(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(after_step, "KEPT", 2)
    train(Shades(), training(), run(), places(tmp_path))
    assert json.loads((tmp_path / "curves/sample_evolution.json").read_text())["images"] == [32, 64]


def test_a_recipe_that_draws_nothing_has_none_and_a_failure_costs_no_training(tmp_path, capsys) -> None:
    train(Toy(), training(), run(), places(tmp_path / "none"))

    class Failing(Shades):
        def sample_evolution(self):
            raise RuntimeError("no room")

    train(Failing(), training(), run(), places(tmp_path))
    assert "cannot draw the sample evolution at image 8: no room" in capsys.readouterr().out
    for folder in (tmp_path / "none", tmp_path):
        assert (folder / "curves/metrics.json").is_file() and not (folder / "curves/sample_evolution.png").exists()


def test_large_images_are_reduced_by_means_of_squares() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 300, 300), dtype=np.uint8)
    small = reduced(images)
    assert small.shape == (2, 3, 100, 100) and small[1, 2, 5, 7] == int(images[1, 2, 15:18, 21:24].mean())
    assert reduced(images[:, :, :128, :128]).shape == (2, 3, 128, 128)
    assert torch.from_numpy(small).is_contiguous()
