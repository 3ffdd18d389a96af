"""What the recipes of all kinds of tokenizers share: what they refuse, and how they tell the use of codes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.recipe import image_losses
from darkroom.models.tokenizers.vqgan.recipe import VQGANRecipe
from darkroom.training.loop import train
from helpers import run, training
from models.tokenizers.dvae_reference import settings as dvae
from models.tokenizers.making_vq_ar import settings as vq_ar
from models.tokenizers.sections import kl
from models.tokenizers.small_vqgan import Pictures
from models.tokenizers.small_vqgan import section as vqgan
from training.toy import places, weights

TRAINED = [kind for kind in TOKENIZERS if TOKENIZERS.has("recipe", kind)]
SECTIONS = {"kl": kl, "dvae": dvae, "vqgan": vqgan, "vq_ar": vq_ar}


def build(kind, shape=(3, 16, 16), settings=None, **changes):
    torch.manual_seed(0)
    recipe = TOKENIZERS.load("recipe", kind)
    return recipe(SECTIONS[kind](**changes), settings or training(), shape, Pictures(), Pictures())


def test_each_kind_is_tried():
    assert list(SECTIONS) == TRAINED


@pytest.mark.parametrize("rank_count", [1, 3])
def test_usage_and_perplexity_of_the_codes_of_all_validation_images(rank_count):
    made = build("vqgan")
    made.model.eval()
    codes = made.model.encode_codes(Pictures().images).numpy().ravel()
    _, counts = np.unique(codes, return_counts=True)
    p = counts / counts.sum()
    shares = []
    for rank in range(rank_count):  # each process gathers what all of them counted
        made.evaluate(rank, rank_count, lambda rows: shares.append(rows) or rows)
    found = made.evaluate(0, rank_count, lambda rows: torch.cat(shares))
    assert found["usage"] == pytest.approx(len(counts) / made.model.codebook_size)
    assert found["perplexity"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert np.array_equal(made.histograms["codes"], np.bincount(codes, minlength=made.model.codebook_size))


def test_a_training_tells_the_use_of_codes_whenever_it_validates_and_learns_the_same(tmp_path):
    settings = training(images=32, log_every=8, validate_every=16)
    trainer = train(build("vqgan", settings=settings), settings, run(), places(tmp_path / "told"))
    made = build("vqgan", settings=settings)
    made.evaluations = []
    assert weights(train(made, settings, run(), places(tmp_path / "silent"))) == weights(trainer)
    for name in ("eval/usage", "eval/perplexity", "val/loss"):
        assert [record["images"] for record in trainer.records if name in record] == [16, 32], name
    assert "train/usage" in trainer.records[-1]


def test_what_has_no_codes_or_no_validation_images_tells_nothing_of_them():
    assert build("kl").evaluations == []
    section = SECTIONS["vqgan"]()
    vqgan = TOKENIZERS.load("recipe", "vqgan")
    assert vqgan(section, training(), (3, 16, 16), Pictures(), Pictures(0)).evaluations == []


@pytest.mark.parametrize("reconstruction", ["mse", "l1"])
def test_of_transparent_images_what_is_clamped_when_decoded_is_no_error(reconstruction):
    x = torch.tensor([-1.0, 1.0, -1.0, 1.0, 0.5]).expand(1, 4, 1, 5)
    output = torch.tensor([-1.5, 1.5, -0.5, 0.5, 1.5]).expand(1, 4, 1, 5)
    power = 2 if reconstruction == "mse" else 1
    losses = image_losses(reconstruction, x, output, None)["reconstruction"]
    assert losses.item() == pytest.approx((0.5**power + 0.5**power + 1) / 5)
    colours = image_losses(reconstruction, x[:, :3], output[:, :3], None)["reconstruction"]
    assert colours.item() == pytest.approx((4 * 0.5**power + 1) / 5)


def test_transparent_images_from_0_to_1_are_clamped_at_0():
    x, output = torch.zeros(1, 4, 1, 1), torch.full((1, 4, 1, 1), -0.5)
    recipe = SimpleNamespace(settings=SimpleNamespace(reconstruction="mse", pixels="unit"), perceptual=None)
    assert VQGANRecipe._per_image(recipe, x, output)["reconstruction"].item() == 0
