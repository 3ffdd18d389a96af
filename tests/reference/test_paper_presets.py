"""The presets that nobody trains on two cores: the model is the paper's, and its first updates run."""

import math

import pytest
import torch
import yaml

from darkroom.check.check import validated
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import config_of
from darkroom.tools.preset import laid_over, overlay
from reference.five import CLASSES, ROOT, UPDATES, bare_bones, five_updates

# Parameters in millions: Peebles and Xie, 2023, table 4.
MILLIONS = {"original-dit-b2": 130, "original-dit-xl2": 675, "sit-b2": 130, "sit-xl2": 675}
B2 = [name for name in MILLIONS if name.endswith("b2")]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    bare_bones(tmp_path)
    monkeypatch.chdir(tmp_path)


def test_these_are_all_the_presets_of_papers():
    papers = [path.stem for pattern in ("original-dit-*", "sit-*") for path in (ROOT / "presets").glob(pattern)]
    assert sorted(papers) == sorted(MILLIONS)


@pytest.mark.parametrize("name", MILLIONS)
def test_the_model_has_the_size_of_the_paper(bare, name):
    laid = yaml.safe_load(laid_over((ROOT / "params.yaml").read_text(), overlay(name)))
    settings = validated(laid).train_generator.dit
    with torch.device("meta"):
        model = DiT(config_of(settings, 4, 32, CLASSES))
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
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in MILLIONS if name not in B2]


@pytest.mark.parametrize("name", [*B2, *OTHERS])
def test_five_updates_of_one_block_run(bare, name):
    five(name, depth=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", MILLIONS)
def test_five_updates_of_the_whole_model_run(bare, name):
    five(name)
