"""The discrete VAE's recipe: its loss in float64, its noise by position, a resume bit for bit."""

import os
import signal

import numpy as np
import pytest
import torch
from torch.nn import functional

from darkroom.data.draw import drawn
from darkroom.models.tokenizers.dvae.recipe import DVAERecipe
from darkroom.models.tokenizers.dvae.relaxations import gumbel_noise
from darkroom.training.loop import seeded, train
from darkroom.training.recipe import Batch
from helpers import run, training
from models.tokenizers.dvae_reference import Reference, images, seen, settings
from training.toy import curves, places, weights

BATCH, PLACES = 4, 16


class Pictures:
    """24 small images of noise."""

    def __init__(self, channels=3, hook=None):
        self.images = images(24, channels).numpy()

    def __len__(self):
        return len(self.images)

    def __getitems__(self, rows, positions=None):
        return {"images": self.images[list(rows)]}

    def keys(self, rows):
        return [f"key{row}" for row in rows]


def recipe(channels=3, batch=BATCH, images=64, **changes):
    pictures = Pictures(channels)
    settled = training(batch=batch, images=images, seed=3)
    with seeded(7):
        return DVAERecipe(settings(**changes), settled, (channels, 16, 16), pictures, pictures)


def batch(positions, channels=3):
    return Batch(np.array(positions), {"images": images(24, channels)[[p % 24 for p in positions]]})


def expected(made, given, tau, stream="train"):
    """The parts of the loss of each image, in float64, at the recipe's weights and noise."""
    reference = Reference(made.model.network.state_dict(), 2, 1)
    noise = torch.from_numpy(gumbel_noise(3, f"tokenizer/{stream}", given.positions.tolist(), (6, 4, 4))).double()
    x = seen(given.data["images"], made.settings.alpha)
    output, logits = reference.output(x, noise, tau)
    error = output - x
    smooth = torch.where(error.abs() < 1, error.square() / 2, error.abs() - 0.5)
    distances = {"mse": error.square(), "smooth_l1": smooth}[made.settings.reconstruction].flatten(1).mean(dim=1)
    q = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    kl = (q * (q * 6).log()).sum(dim=1).flatten(1)  # (N, places)
    return distances, kl


@pytest.mark.parametrize(("reconstruction", "channels", "alpha"), [("mse", 3, "signed"), ("smooth_l1", 4, "unit")])
@torch.no_grad()
def test_the_loss_is_the_formula_in_float64(reconstruction, channels, alpha):
    made = recipe(channels, reconstruction=reconstruction, alpha=alpha, kl_weight=0.25)
    given = batch([8, 9, 10, 11], channels)  # the third update
    found = made.loss(given)
    tau = 0.9 * np.exp(-0.01 * 2)
    distance, kl = (values.mean().item() for values in expected(made, given, tau))
    assert found["temperature"].item() == pytest.approx(tau, rel=1e-6)
    assert found["reconstruction"].item() == pytest.approx(distance, rel=1e-5)
    assert found["kl"].item() == pytest.approx(kl, rel=1e-5)
    assert found["loss"].item() == pytest.approx(distance + 0.25 * kl, rel=1e-5)


@torch.no_grad()
def test_the_sum_is_upstreams_over_batch_and_positions_also_in_pieces():
    made, given = recipe(kl_reduction="sum", kl_weight=0.5), batch([4, 5, 6, 7])
    distance, kl = expected(made, given, 0.9 * np.exp(-0.01))
    total = (distance.mean() + 0.5 * kl.sum()).item()
    assert made.loss(given)["loss"].item() == pytest.approx(total, rel=1e-5)
    pieces = [made.loss(piece)["loss"].item() for piece in given.split(1)]
    assert np.mean(pieces) == pytest.approx(total, rel=1e-5)


def test_pieces_of_a_batch_add_up_to_its_gradient():
    made, given = recipe(straight_through=True, reinmax=True, kl_weight=0.1), batch([4, 5, 6, 7])
    made.loss(given)["loss"].backward()
    whole = [p.grad.clone() for p in made.model.parameters()]
    made.model.zero_grad()
    for piece in given.split(1):
        (made.loss(piece)["loss"] / 4).backward()
    for gradient, parameter in zip(whole, made.model.parameters(), strict=True):
        assert torch.allclose(gradient, parameter.grad, rtol=1e-4, atol=1e-7)


@torch.no_grad()
def test_the_kl_weight_warms_up_by_images():
    made = recipe(kl_weight=0.5, kl_warmup=16)
    assert [made.loss(batch([at]))["kl_weight"].item() for at in (0, 4, 11, 16, 63)] == [0.0, 0.125, 0.25, 0.5, 0.5]


@torch.no_grad()
def test_validation_is_by_the_codes_and_by_fixed_noise_at_the_last_temperature():
    made, given = recipe(kl_weight=0.25), batch([1, 2, 3])
    found = made.validate(given)
    distance, kl = expected(made, given, 0.9 * np.exp(-0.01 * 15), "val")
    assert torch.allclose(found["soft"].double(), distance, rtol=1e-5)
    assert torch.allclose(found["kl"].double(), kl.mean(dim=1), rtol=1e-5)
    x = made.model.pixels(given.data["images"])
    vectors = made.model.vectors(made.model.encode_codes(given.data["images"]))
    hard = functional.mse_loss(made.model.network.decoder(vectors), x, reduction="none").flatten(1).mean(dim=1)
    assert torch.allclose(found["reconstruction"], hard, rtol=1e-5)
    assert torch.allclose(found["loss"], hard + 0.25 * found["kl"], rtol=1e-5)
    alone = made.validate(batch([2]))
    assert all(torch.allclose(alone[name][0], values[1], rtol=1e-5) for name, values in found.items())


def test_an_image_meets_the_same_noise_in_any_batch():
    made, noises = recipe(), []
    made.model.register_forward_pre_hook(lambda _, inputs: noises.append(inputs[2]))
    made.loss(batch([0, 1, 2, 3]))
    made.loss(batch([3]))
    assert torch.equal(noises[0][3:4], noises[1])


@torch.no_grad()
def test_the_preview_shows_originals_soft_and_hard():
    made = recipe()
    shown = made.preview()
    assert shown.shape == (30, 3, 16, 16) and shown.dtype == np.uint8
    originals = images(24)[drawn(24, 10)]
    assert np.array_equal(shown[:10], originals.numpy())
    assert np.array_equal(shown[20:], made.model.reconstruct(originals).numpy())
    assert not np.array_equal(shown[10:20], shown[20:])


@torch.no_grad()
def test_the_sample_evolution_is_what_is_made_of_the_first_row_of_originals():
    made = recipe(grid_images=12)
    originals = images(24)[drawn(24, 12)][:10]
    assert np.array_equal(made.originals(), originals.numpy())
    assert np.array_equal(made.sample_evolution(), made.model.reconstruct(originals).numpy())


@torch.no_grad()
def test_the_preview_has_as_many_images_as_asked_in_rows():
    made = recipe(grid_images=4)
    assert made.columns == 4 and np.array_equal(made.preview()[:4], images(24)[drawn(24, 4)].numpy())
    made = recipe(grid_images=12)
    shown, known = made.preview(), images(24)[drawn(24, 12)]
    assert made.columns == 10 and len(shown) == 2 * 3 * 10  # a row each of originals, soft and hard ones, and the rest
    assert np.array_equal(shown[30:32], known[10:].numpy()) and (shown[32:40] == 255).all()
    assert np.array_equal(shown[[20, 29, 50, 51]], made.model.reconstruct(known)[[0, 9, 10, 11]].numpy())


KINDS = {
    "soft": {"temperature": {"rule": "compounding", "start": 1.0, "minimum": 0.2, "rate": 0.02, "images": None}},
    "reinmax": {"straight_through": True, "reinmax": True, "kl_weight": 0.1, "kl_warmup": 48},
}


@pytest.mark.parametrize(("kind", "micro_batch"), [("soft", None), ("reinmax", 3)])
def test_a_training_that_was_stopped_continues_bit_for_bit(tmp_path, kind, micro_batch):
    def made(hook=None):
        settled = recipe(batch=8, **KINDS[kind])
        if hook:
            settled.model.register_forward_pre_hook(hook)
        return settled

    def stop(model, inputs):
        stop.seen += model.training
        if stop.seen == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    stop.seen = 0
    settled, how = training(batch=8, seed=3), run(micro_batch=micro_batch)
    whole = train(made(), settled, how, places(tmp_path / "whole"))
    with pytest.raises(SystemExit):
        train(made(stop), settled, how, places(tmp_path))
    resumed = train(made(), settled, how, places(tmp_path))
    assert weights(resumed) == weights(whole) and resumed.records == whole.records
    assert curves(tmp_path / "curves") == curves(tmp_path / "whole" / "curves")
    assert {"eval/usage", "eval/perplexity", "train/temperature", "val/soft"} <= whole.records[-1].keys()
