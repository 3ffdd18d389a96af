"""The presets that nobody trains on two cores: the model is the paper's, and its first updates run."""

import math

import numpy as np
import pytest
import torch
import yaml

from darkroom.check.check import validated
from darkroom.diffusion.objectives import objective_of
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import config_of
from darkroom.tools.preset import laid_over, overlay
from helpers import DIGITS
from reference.five import CLASSES, ROOT, UPDATES, bare_bones, five_updates

# Parameters in millions: Peebles and Xie, 2023, table 4; Li and He, 2025, of JiT.
MILLIONS = {"original-dit-b2": 130, "original-dit-xl2": 675, "sit-b2": 130, "sit-xl2": 675, "jit-b16": 131}
B2 = [name for name in MILLIONS if name.endswith("b2")]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    bare_bones(tmp_path)
    monkeypatch.chdir(tmp_path)


def test_these_are_all_the_presets_of_papers():
    papers = [
        path.stem for pattern in ("original-dit-*", "sit-*", "jit-*") for path in (ROOT / "presets").glob(pattern)
    ]
    assert sorted(papers) == sorted(MILLIONS)


@pytest.mark.parametrize("name", MILLIONS)
def test_the_model_has_the_size_of_the_paper(bare, name):
    laid = yaml.safe_load(laid_over(DIGITS.read_text(), overlay(name)))
    params = validated(laid)
    channels, size = (3, 256) if params.train_tokenizer.kind == "identity" else (4, 32)
    with torch.device("meta"):
        model = DiT(config_of(params.train_generator.dit, channels, size, CLASSES))
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(MILLIONS[name], rel=0.01)


def five(name, depth=None):
    trainer = five_updates(name, depth)
    config, settings = trainer.modules["dit"].config, trainer.settings
    assert (config.size, config.channels, config.depth) == (32, 4, depth or config.depth)
    assert (settings.precision, settings.clip_norm, settings.learning_rate) == ("fp32", None, 1e-4)
    assert (settings.ema_decay, settings.ema_warmup, settings.weight_decay) == (0.9999, False, 0.0)
    records = trainer.records
    assert [record["images"] for record in records] == list(range(1, UPDATES + 1))
    assert all(math.isfinite(value) for record in records for value in record.values())
    # An untrained DiT answers 0: noise has a variance of 1, noise minus data of unit variance one of 2.
    simple = {"original": 1, "sit": 2}[name.split("-")[0]]
    said = "train/simple" if simple == 1 else "train/loss"
    assert records[0][said] == pytest.approx(simple, abs=0.15)
    assert all(record["train/grad_norm/dit"] > 0 for record in records)
    assert records[-1][said.replace("train", "val")] == pytest.approx(simple, abs=0.15)


# The others differ in width and depth alone, and take minutes where the processor has no bfloat16.
OF_LATENTS = [name for name in MILLIONS if name != "jit-b16"]
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in OF_LATENTS if name not in B2]


@pytest.mark.parametrize("name", [*B2, *OTHERS])
def test_five_updates_of_one_block_run(bare, name):
    five(name, depth=1)


@pytest.mark.slow  # half a minute
def test_five_updates_of_jit_on_pixels_run(bare):
    trainer = five_updates("jit-b16", depth=1)
    config, settings = trainer.modules["dit"].config, trainer.settings
    assert (config.size, config.channels, config.patch, config.patch_bottleneck) == (256, 3, 16, 128)
    assert (settings.precision, settings.learning_rate, tuple(settings.betas)) == ("bf16", 2e-4, (0.9, 0.95))
    assert all(math.isfinite(value) for record in trainer.records for value in record.values())


@pytest.mark.parametrize("name", ["jit-b16", "pixels"])
def test_pixels_have_the_loss_and_the_times_of_jit(bare, name):
    """In its time s = 1 - t, z = s x + (1 - s) e: |(x' - z) / (1 - s) - (x - z) / (1 - s)|², logit s: N(-0.8, 0.64)."""
    laid = yaml.safe_load(laid_over(DIGITS.read_text(), overlay(name)))
    settings = validated(laid).train_generator.dit.diffusion
    assert settings.scale([0.3], [0.5]) == ([0.0], [1.0])  # pixels in [-1, 1], as they are
    objective = objective_of(settings, settings.timesteps)
    normals = np.linspace(-1.5, 1.5, 7)
    s = 1 - objective.times(np.zeros(7), normals).double()
    torch.testing.assert_close(torch.logit(s), torch.from_numpy(-0.8 - 0.8 * normals), rtol=0, atol=1e-5)
    x, e, predicted = torch.randn(3, 7, 3, 4, 4, dtype=torch.float64)
    of_each = s.view(-1, 1, 1, 1)
    z = of_each * x + (1 - of_each) * e
    expected = ((predicted - z) / (1 - of_each) - (x - z) / (1 - of_each)).square().mean(dim=(1, 2, 3))
    found = objective.losses(predicted, x, e, objective.add_noise(x, e, 1 - s), 1 - s)["loss"]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_LATENTS)
def test_five_updates_of_the_whole_model_run(bare, name):
    five(name)
