"""What a generator shows while it trains, through the stage: scores, grids; and Heun's method through the stages."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators import sample_settings
from darkroom.models.generators.dit.network import DiT
from darkroom.models.tokenizers.protocol import load_tokenizer
from darkroom.params.section import validate
from darkroom.rng import normal
from darkroom.stages import score_generator
from helpers import run
from stages.tiny_generator import INCEPTION, enter_copy, sample, train, train_until, write_clone

GRIDS, CURVES = Path("logs/train_generator/grids"), Path("curves/generator")
UNSCORED = {"every": 0, "extractor": "data/none", "reference": "data/none"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture
def clone(whole, tmp_path, monkeypatch):
    enter_copy(whole, tmp_path / "clone", monkeypatch)


def curve(name: str) -> dict[int, float]:
    """Return the points of a curve of an evaluation, by images seen."""
    (path,) = CURVES.rglob(f"eval/{name}.tsv")
    head, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert head[0] == "step", head
    return {int(row[0]): float(row[-1]) for row in rows}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ----------------------------------------------------------------------------------------------------------------------
# Scores


def test_scores_are_those_of_the_stages_that_sample_and_score(clone):
    """Of the averaged weights at the end, for the same noise, steps and guidance."""
    train("class", evaluate={"seed": 5, "images": 16}, sampling={"steps": 3})
    assert list(curve("fd")) == [32, 64] and curve("fd")[32] != curve("fd")[64]
    sample("class", guidance=2.0, dit={"steps": 3}, images=16, seed=5)
    given = {"run": run().model_dump(), "reference_stats": {"inception": INCEPTION}}
    score_generator.run(validate(sample_settings.ScoreParams, {**given, "score_generator": {"batch": 4, "blocks": 8}}))
    scores = json.loads(Path("metrics/generator.json").read_text())
    for name in ("fd", "fd_debiased", "kid", "label_accuracy"):
        assert curve(name)[64] == pytest.approx(scores[name], rel=1e-4, abs=1e-6), name


def test_evaluations_change_no_weight_and_a_stopped_training_draws_the_same_curves(clone, monkeypatch):
    """Stopped between two evaluations."""
    train("class", {"grid_every": 0}, evaluate=UNSCORED)
    plain = files(Path("models/generator"))["model.safetensors"]
    shutil.rmtree("state")
    train("class")
    curves, weights, grids = files(CURVES), files(Path("models/generator")), files(GRIDS)
    assert weights["model.safetensors"] == plain and list(curve("kid")) == [32, 64]
    for path in ("state", "logs", "curves"):
        shutil.rmtree(path)
    train_until(48, "class", monkeypatch)
    train("class")
    assert files(CURVES) == curves and files(Path("models/generator")) == weights and files(GRIDS) == grids


# ----------------------------------------------------------------------------------------------------------------------
# Grids


def grids() -> dict[str, np.ndarray]:
    return {path.stem: np.asarray(Image.open(path)).astype(int) for path in sorted(GRIDS.iterdir())}


def drawn(**more) -> np.ndarray:
    """Return the last grid of a training without evaluations."""
    for path in ("state", "logs"):
        shutil.rmtree(path, ignore_errors=True)
    train("class", evaluate=UNSCORED, **more)
    return grids()["000000064-ema"]


def test_grids_are_drawn_when_they_are_due_and_show_what_is_sampled(clone):
    train("class", {"grid_every": 32}, evaluate=UNSCORED)
    found = grids()
    assert list(found) == [f"{images:09d}-{weights}" for images in (32, 64) for weights in ("ema", "raw")]
    for one in found.values():
        assert one.std() > 1 and len(np.unique(one)) > 10, "not blank"
    assert (found["000000032-ema"] != found["000000064-ema"]).any()
    assert (found["000000064-raw"] != found["000000064-ema"]).any()


def test_where_nothing_is_dropped_nothing_guides_grids(clone):
    """A scale of 1000 would be seen: of so short a training the null and the classes differ little."""
    plain, strong = {"guidance": 1.0}, {"guidance": 1000.0}
    np.testing.assert_array_equal(drawn(dropout=0.0, sampling=strong), drawn(dropout=0.0, sampling=plain))
    assert np.abs(drawn(sampling=strong) - drawn(sampling=plain)).max() > 2


# ----------------------------------------------------------------------------------------------------------------------
# Heun's method


def test_heun_takes_two_calls_a_step_but_one_in_the_last(clone, monkeypatch):
    """And makes the images that its formula makes by hand."""
    train("class", evaluate=UNSCORED)
    calls, forward = [], DiT.forward
    monkeypatch.setattr(DiT, "forward", lambda self, *given: (calls.append(len(given[0])), forward(self, *given))[1])
    steps = 3
    for guidance in (1.0, 2.0):
        calls.clear()
        shards, manifest = sample("class", guidance, {"solver": "heun", "steps": steps}, images=4)
        assert calls == [4 if guidance == 1 else 8] * (2 * steps - 1)
        expected = by_hand(guidance, steps, manifest["sampler"]["seed"])
        (found,) = shards.batches(4)
        assert np.abs(found.astype(int) - expected).max() <= 1, guidance


def by_hand(guidance: float, steps: int, seed: int) -> np.ndarray:
    """Return four images by Heun's formula."""
    model = DiT.from_pretrained(Path("models/generator"))
    tokenizer, _ = load_tokenizer(Path("models/tokenizer"), (3, 8, 8))
    there = json.loads(Path("models/generator/manifest.json").read_text())
    labels = torch.arange(4) % len(there["classes"])
    null = torch.full_like(labels, model.null_label)

    def velocity(x: torch.Tensor, t: float) -> torch.Tensor:
        times = torch.full((4,), 1000 * t)
        return model(x, times, null) + guidance * (model(x, times, labels) - model(x, times, null))

    x = torch.from_numpy(normal(seed, "sample/noise", range(4), tokenizer.latent_shape))
    with torch.no_grad():
        for number in range(steps):
            t, then = 1 - number / steps, 1 - (number + 1) / steps
            slope = velocity(x, t)
            end = x + (then - t) * slope
            x = x + (then - t) / 2 * (slope + velocity(end, then)) if number < steps - 1 else end
        return tokenizer.decode(LatentScaler(there["latent_mean"], there["latent_std"]).invert(x)).numpy()
